"""The registry against the wire contract, sections 3, 5 and 6."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from pheby_protocol import messages, registry
from pheby_protocol.codec import DecodeError, decode
from pheby_protocol.ids import SCALARS, Time
from pheby_protocol.messages._base import Event, LoggedEvent, Message, Request, Result, TransientEvent
from pheby_protocol.messages.attachment import ImageSize
from pheby_protocol.messages.connection import Ping
from pheby_protocol.messages.conversation import Conversation
from pheby_protocol.messages.message import IfBusy
from pheby_protocol.messages.run import RunError
from pheby_protocol.registry import REGISTRY, Direction, Kind, schema_digest
from pheby_protocol.version import SUPPORTED_VERSIONS

from .examples import words

REQUESTS = words("""
    ping conversation.list conversation.get conversation.history conversation.create conversation.rename
    conversation.delete message.send message.receipt message.text run.cancel approval.respond clarification.respond
    model.list model.select reasoning.list reasoning.select attachment.get
""")
LOGGED = words("""
    conversation.created conversation.updated conversation.deleted history.changed
    message.created message.updated message.completed run.started run.updated run.ended tool.started tool.completed
    approval.requested approval.updated approval.resolved clarification.requested clarification.resolved
    attachment.created attachment.expired model.changed reasoning.changed
""")
TRANSIENT = words("message.delta message.replaced run.progress server.draining")
HANDSHAKE = words("snapshot sync.completed batch")
RESULT_OF = {"hello": "welcome", "ping": "pong"} | {tag: f"{tag}.result" for tag in REQUESTS if tag != "ping"}

CONTRACT: dict[str, tuple[Kind, Direction]] = (
    dict.fromkeys(RESULT_OF, (Kind.REQUEST, Direction.CLIENT_TO_SERVER))
    | dict.fromkeys(RESULT_OF.values(), (Kind.RESULT, Direction.SERVER_TO_CLIENT))
    | dict.fromkeys(LOGGED, (Kind.LOGGED_EVENT, Direction.SERVER_TO_CLIENT))
    | dict.fromkeys(TRANSIENT, (Kind.TRANSIENT_EVENT, Direction.SERVER_TO_CLIENT))
    | dict.fromkeys(HANDSHAKE, (Kind.SYNC, Direction.SERVER_TO_CLIENT))
    | {"error": (Kind.ERROR, Direction.SERVER_TO_CLIENT)}
)

BASES = {
    Kind.REQUEST: Request,
    Kind.RESULT: Result,
    Kind.LOGGED_EVENT: LoggedEvent,
    Kind.TRANSIENT_EVENT: TransientEvent,
    Kind.SYNC: Event,
    Kind.ERROR: Message,
}


@pytest.mark.parametrize(("tag", "role"), CONTRACT.items(), ids=str)
def test_every_type_of_the_contract_is_there_with_its_kind_and_direction(
    tag: str, role: tuple[Kind, Direction]
) -> None:
    assert (REGISTRY[tag].kind, REGISTRY[tag].direction) == role


@pytest.mark.parametrize(("tag", "result"), RESULT_OF.items())
def test_every_request_has_the_result_of_the_contract(tag: str, result: str) -> None:
    assert REGISTRY[tag].result == result


def test_only_requests_have_a_result() -> None:
    assert all((spec.result is not None) == (spec.kind is Kind.REQUEST) for spec in REGISTRY.values())


def test_every_result_answers_one_request() -> None:
    answers = [spec.result for spec in REGISTRY.values() if spec.result is not None]
    assert sorted(answers) == sorted(tag for tag, spec in REGISTRY.items() if spec.kind is Kind.RESULT)


def test_what_the_contract_does_not_name_is_an_addition() -> None:
    """Nothing yet. An addition is a deliberate change of this line."""
    assert set(REGISTRY) - set(CONTRACT) == set()


@pytest.mark.parametrize("tag", REGISTRY)
def test_the_tag_is_the_class_s_own(tag: str) -> None:
    spec = REGISTRY[tag]
    assert spec.type == tag
    assert spec.cls.type == tag
    assert issubclass(spec.cls, BASES[spec.kind])


@pytest.mark.parametrize("tag", REGISTRY)
def test_every_message_is_served_since_a_supported_version(tag: str) -> None:
    assert REGISTRY[tag].since in SUPPORTED_VERSIONS


@pytest.mark.parametrize("tag", LOGGED)
def test_every_logged_event_names_its_conversation(tag: str) -> None:
    """J2."""
    assert {"seq", "time", "conversation_id"} <= attrs.fields_dict(REGISTRY[tag].cls).keys()


@pytest.mark.parametrize("tag", TRANSIENT)
def test_only_logged_events_carry_a_place_in_the_log(tag: str) -> None:
    assert not {"seq", "time"} & attrs.fields_dict(REGISTRY[tag].cls).keys()


@pytest.mark.parametrize("tag", REGISTRY)
def test_every_message_is_documented(tag: str) -> None:
    assert (REGISTRY[tag].cls.__doc__ or "").strip().endswith((".", "`"))


def message_classes() -> list[type[Any]]:
    found: dict[str, type[Any]] = {}
    for module in pkgutil.iter_modules(messages.__path__):
        for kind in vars(importlib.import_module(f"{messages.__name__}.{module.name}")).values():
            if isinstance(kind, type) and issubclass(kind, Message) and "type" in vars(kind):
                found[kind.__qualname__] = kind
    return list(found.values())


def test_no_message_class_is_left_out() -> None:
    assert {spec.cls for spec in REGISTRY.values()} == set(message_classes())


# -- digest


def test_the_digest_does_not_change_while_the_process_runs() -> None:
    """cattrs resolves annotations in place as it decodes; the digest must not see that."""
    schema_digest.cache_clear()
    before = schema_digest()
    for tag in REGISTRY:
        with pytest.raises(DecodeError):
            decode(f'{{"type":"{tag}","id":5,"seq":"x","events":5,"reconnect_after_ms":"x","code":5}}')
    schema_digest.cache_clear()
    assert schema_digest() == before


def test_the_digest_is_the_same_in_every_process() -> None:
    program = "from pheby_protocol.registry import schema_digest; print(schema_digest())"
    fresh = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert fresh.stdout.strip() == schema_digest()


@pytest.fixture
def fresh_digest() -> Iterator[Callable[[], str]]:
    """The digest as it would be in a process that started now."""
    yield schema_digest.__wrapped__
    schema_digest.cache_clear()


@pytest.mark.parametrize(
    ("cls", "name"), [(Ping, "id"), (Conversation, "title"), (RunError, "code"), (ImageSize, "width")]
)
def test_the_digest_changes_with_any_field_however_deep(
    cls: type[Any], name: str, fresh_digest: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fresh_digest()
    owner = next(base for base in cls.__mro__ if name in vars(base).get("__annotations__", {}))
    monkeypatch.setitem(owner.__annotations__, name, "bool")
    assert fresh_digest() != before


def test_the_digest_changes_with_a_bound(fresh_digest: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = fresh_digest()
    monkeypatch.setitem(SCALARS, Time, attrs.evolve(SCALARS[Time], maximum=7))
    assert fresh_digest() != before


def test_the_digest_does_not_change_with_a_comment(
    fresh_digest: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fresh_digest()
    monkeypatch.setitem(SCALARS, Time, attrs.evolve(SCALARS[Time], description="Said better."))
    assert fresh_digest() == before


def test_the_digest_knows_the_values_of_enumerations() -> None:
    assert registry._describe(IfBusy)[0] == ["pheby_protocol.messages.message.IfBusy: queue, steer, interrupt, reject"]


def test_the_digest_is_short_and_plain() -> None:
    assert len(schema_digest()) == 16
    assert int(schema_digest(), 16) >= 0
