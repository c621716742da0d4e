check-fast:
	.venv/bin/ruff format -q pheby_protocol pheby_server hermes_plugin pheby tests
	.venv/bin/ruff check --output-format concise .
	.venv/bin/mypy
