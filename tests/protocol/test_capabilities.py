"""Capabilities: names that are negotiated beside the version (J1)."""

from __future__ import annotations

import json
import re

from pheby_protocol.capabilities import BATCH, SERVER_CAPABILITIES
from pheby_protocol.codec import decode
from pheby_protocol.messages.connection import Hello, Welcome

from .examples import MINIMAL, frame_of


def test_batch_is_the_name_that_the_contract_gives() -> None:
    assert BATCH == "batch"
    assert BATCH in SERVER_CAPABILITIES


def test_every_capability_has_a_plain_name_and_a_meaning() -> None:
    for name, meaning in SERVER_CAPABILITIES.items():
        assert re.fullmatch("[a-z][a-z_]*", name)
        assert meaning.endswith(".")


def test_what_a_client_offers_may_be_unknown() -> None:
    hello = decode(json.dumps(frame_of(MINIMAL["hello"]) | {"capabilities": ["batch", "future"]}))
    assert isinstance(hello, Hello)
    assert hello.capabilities == ("batch", "future")


def test_a_client_that_offers_nothing_need_not_say_so() -> None:
    hello = decode(json.dumps(frame_of(MINIMAL["hello"])))
    assert isinstance(hello, Hello)
    assert hello.capabilities == ()


def test_what_a_server_announces_may_be_unknown() -> None:
    welcome = decode(json.dumps(frame_of(MINIMAL["welcome"]) | {"capabilities": {"batch": False, "future": True}}))
    assert isinstance(welcome, Welcome)
    assert welcome.capabilities == {"batch": False, "future": True}


def test_every_capability_can_be_announced() -> None:
    announced = dict.fromkeys(SERVER_CAPABILITIES, True)
    welcome = decode(json.dumps(frame_of(MINIMAL["welcome"]) | {"capabilities": announced}))
    assert isinstance(welcome, Welcome)
    assert welcome.capabilities == announced
