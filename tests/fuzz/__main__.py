"""`python -m tests.fuzz NAME [libFuzzer's options]`: needs atheris, which is in no extra (CPython 3.11 to 3.13)."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["pheby_protocol", "pheby_server"]):
    from tests.fuzz.targets import TARGETS

atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]])
atheris.Fuzz()
