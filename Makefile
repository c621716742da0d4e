# Needs Python 3.11 or newer and pip; everything else is made here. `make help` lists the targets.
PYTHON ?= python3
HERMES ?= 0.19
VENV := .venv
BIN := $(VENV)/bin
LINES := simulated 0.19 0.22 0.19-defaults 0.22-defaults

.PHONY: docs matrix pictures release help setup hermes demo check schemas test test-unit test-hermes soak bench tools kotlin kotlin-suite node proxies install-test test-extra seams clean
.DEFAULT_GOAL := help

help:
	@echo "make demo [SAY='say hello'] [HERMES=0.22] [SERVE=1] [ARGS='…']   a real Hermes with Pheby, and a chat on it"
	@echo "make test                     everything, on both Hermes lines"
	@echo "make check                    lint, types, imports (seconds)"
	@echo "make test-unit                what needs no Hermes"
	@echo "make test-hermes LINE=0.19    the end-to-end suite on one line (0.19, 0.22, simulated)"
	@echo "make bench [QUICK=1] [ONLY=x] measurements, as ratios to a peer in the same run"
	@echo "make soak                     long fault runs: 10,000 schedules; on each line 200 cuts or kills, 1,000 operations"
	@echo "make matrix                   play every check on every broken server, every scenario on every broken client (half an hour)"
	@echo "make schemas                  write all generated files again (schemas, Kotlin, vectors, reference)"
	@echo "make load                     many clients, hostile ones, and what they cost (a minute)"
	@echo "make kotlin                   compile the Kotlin client, run the vectors on it, and let it chat (Java, Maven)"
	@echo "make proxies [CUTTING=60]     files and sockets beside nginx and through Caddy; the Kotlin client there, with both lines"
	@echo "make seams LINE=0.19          rename each name of Hermes's that Pheby uses, and see what it costs (ten minutes)"
	@echo "make install-test             from a Hermes without Pheby to an exchange and back, by the wheel, on both lines"
	@echo "make tools test-extra         what needs more than Python; tools installs it from Debian's packages"
	@echo "make docs [MERMAID=file.js]   the documentation as a site, in build/site"
	@echo "make pictures                 the terminal client's pictures in docs/pictures, played and drawn anew"
	@echo "make release                  everything that is released, in dist, the same in each run; then tried on every Python here"
	@echo "make setup                    the development environment and both Hermes lines"

# Standard output belongs to what was asked for (`make demo SERVE=1` prints JSON), so this speaks on standard error.
$(VENV)/.made: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Pheby needs Python 3.11 or newer (PYTHON=…)" >&2; exit 1; }
	@echo "Making the development environment ..." >&2
	@$(PYTHON) -m venv $(VENV) >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]' -c constraints.txt >&2
	@mkdir -p .mypy && ln -sfn ../hermes_plugin .mypy/pheby_hermes && ln -sfn ../conformance .mypy/pheby_conformance
	@touch $@

hermes: $(VENV)/.made
	@$(BIN)/python -m pheby.demo.lines 0.19 0.22

setup: hermes

demo: $(VENV)/.made
	@$(BIN)/pheby demo --hermes $(HERMES) $(if $(SAY),--say '$(subst ','\'',$(SAY))') $(if $(SERVE),--serve) $(ARGS)

check: $(VENV)/.made
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	@$(BIN)/lint-imports > .mypy/imports.log || { cat .mypy/imports.log; exit 1; }
	$(BIN)/pheby schema check .

schemas: $(VENV)/.made
	$(BIN)/pheby schema export .

# Two at a time: a gateway mostly waits. Each part prints what it did when it has ended.
E2E := $(addprefix e2e-,$(LINES))
.PHONY: $(E2E)

test: hermes
	@$(MAKE) --no-print-directory --output-sync=target -j2 e2e-0.19 e2e-0.22 test-unit e2e-0.22-defaults e2e-0.19-defaults e2e-simulated

# Hermes's own settings for what it shows make no difference to these.
EITHER_WAY := conformance documented_commands faults faults_access faults_canary malformed profiles seeded store_faults two_clients

$(E2E): e2e-%:
	$(BIN)/python -m pytest tests/e2e $(if $(findstring defaults,$*),$(EITHER_WAY:%=--ignore tests/e2e/test_%.py),$(if $(filter simulated,$*),,tests/seams)) --line $*

test-unit: $(VENV)/.made
	$(BIN)/python -m pytest --ignore tests/e2e

test-hermes: hermes
	$(BIN)/python -m pytest tests/e2e tests/seams --line $(or $(LINE),$(HERMES))

# Every name of Hermes's that Pheby uses is renamed, one at a time.
seams: hermes
	$(BIN)/python -m pytest tests/seams/matrix.py --line $(or $(LINE),$(HERMES))

bench: $(VENV)/.made
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]' -c constraints.txt >&2
	$(BIN)/python -m bench.run $(if $(QUICK),--quick) $(addprefix --only ,$(ONLY))

# The diagrams are drawn in the reader's browser by Mermaid, which is fetched from a public server; with MERMAID=file (the
# mermaid.min.js of its npm package) it is part of the site, and no page asks anybody for anything.
docs: $(VENV)/.made
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]' -c constraints.txt >&2
	@# Not --quiet: then --strict would not hear of warnings.
	@mkdir -p build
	@MERMAID='$(MERMAID)' NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict > build/docs.log 2>&1 || { cat build/docs.log; exit 1; }
	@echo build/site/index.html

pictures: $(VENV)/.made
	@$(BIN)/python -m release.pictures

# Of what is committed. The second part needs the package index, and takes a minute for each Python.
release: $(VENV)/.made
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[release]' -c constraints.txt >&2
	@$(BIN)/python -m release.make
	@$(BIN)/python -m release.try_wheel

# What takes minutes: many random schedules, many kills of real gateways. Side by side, since a gateway mostly waits.
SCHEDULES ?= 10000
KILLS ?= 200
OPERATIONS ?= 1000
SOAKS := soak-schedules load soak-0.19 soak-0.22
.PHONY: $(SOAKS)

soak: hermes
	@$(MAKE) --no-print-directory --output-sync=target -j3 $(SOAKS)

load: $(VENV)/.made
	$(BIN)/python -m pytest tests/load

# Which check notices which fault: tests/conformance/matrix.json, which is wanted anew when checks or faults have changed.
ALONE ?= 6
matrix: $(VENV)/.made
	$(BIN)/python tests/conformance/matrix.py --alone $(ALONE)
	$(BIN)/python -m pytest tests/conformance/test_client_scenarios.py --matrix

soak-schedules: $(VENV)/.made
	$(BIN)/python -m pytest tests/properties/test_schedules.py --schedules $(SCHEDULES)

soak-0.19 soak-0.22: soak-%:
	$(BIN)/python -m pytest tests/e2e/test_kill.py tests/e2e/test_two_clients.py --kills $(KILLS) --operations $(OPERATIONS) --line $*

# The Debian package that brings each command. nginx and Caddy come as services, which are not wanted: the tests start
# their own, on ports of their own.
tools:
	@PATH="$$PATH:/usr/sbin"; \
	for need in java:openjdk-17-jdk-headless mvn:maven node:nodejs npm:npm nginx:nginx caddy:caddy; do \
	  command -v $${need%%:*} >/dev/null || missing="$$missing $${need##*:}"; \
	done; \
	if [ -n "$$missing" ]; then \
	  sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$sudo apt-get update -qq && $$sudo env SYSTEMD_OFFLINE=1 apt-get install -y -qq --no-install-recommends $$missing; \
	fi

kotlin: $(VENV)/.made
	mvn -B --no-transfer-progress -f conformance/kotlin/pom.xml test

# The conformance suite on what that has built.
kotlin-suite: kotlin
	$(BIN)/pheby conformance codec --command 'conformance/kotlin/run.sh codec'
	$(BIN)/pheby conformance client --command 'conformance/kotlin/run.sh client'

node: $(VENV)/.made
	cd conformance/tools && npm ci --silent --no-audit --no-fund && npm test
	cd conformance/peers/minimal-js && npm ci --silent --no-audit --no-fund
	$(BIN)/pheby conformance client --command 'node conformance/peers/minimal-js/client.js'

# For how many seconds the line of the Kotlin client is cut.
CUTTING ?= 20

proxies: hermes
	$(BIN)/python -m pytest tests/proxies --cutting $(CUTTING)

# In copies of the environments, beside them; pip may fetch what the wheel needs. Where Maven is, the Kotlin client chats, too.
install-test: hermes
	$(BIN)/python -m pytest tests/installed

test-extra: kotlin-suite node proxies install-test

clean:
	rm -rf $(VENV) .hermes .mypy .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
