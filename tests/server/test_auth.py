"""Who may connect (R-M1, K1)."""

from __future__ import annotations

import hmac

import pytest

from pheby_protocol.messages.connection import AccessMode
from pheby_server.auth import Authenticator, Credential

FULL = "full-0123456789abcdef-0123456789abcdef"
WATCH = "watch-0123456789abcdef-0123456789abcdef"
AUTHENTICATOR = Authenticator(((AccessMode.FULL, FULL), (AccessMode.READ_ONLY, WATCH)))


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_right_secret_passes_whatever_the_case_of_the_scheme(scheme: str) -> None:
    assert AUTHENTICATOR.access([f"{scheme} {FULL}"]) is AccessMode.FULL


def test_each_secret_has_its_own_access_mode() -> None:
    assert AUTHENTICATOR.access([f"Bearer {WATCH}"]) is AccessMode.READ_ONLY


def test_an_equal_secret_in_two_modes_counts_as_the_first() -> None:
    both = Authenticator(((AccessMode.MANAGE, FULL), (AccessMode.FULL, FULL)))
    assert both.access([f"Bearer {FULL}"]) is AccessMode.MANAGE


def test_spaces_around_the_secret_do_not_matter() -> None:
    assert AUTHENTICATOR.access([f"Bearer   {FULL} "]) is AccessMode.FULL


@pytest.mark.parametrize(
    "values",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer "],
        ["Bearer é"],
        ["Bearer \udce9\udcff"],
        ["Bearer \udced\udca0\udc80"],
        [f"Bearer {FULL}x"],
        [f"Bearer {FULL[:-1]}"],
        [f"Bearer {FULL.upper()}"],
        [f"Bearer {FULL}é"],
        ["Bearer " + "x" * 10_240],
        [f"Basic {FULL}"],
        [FULL],
        [f"Bearer{FULL}"],
        [f"Bearer\t{FULL}"],
        [f"Bearer {FULL}, Bearer {FULL}"],
        [f"Bearer {FULL}", f"Bearer {FULL}"],
        [f"Bearer {FULL}", "Bearer wrong"],
        ["Bearer wrong", f"Bearer {FULL}"],
    ],
)
def test_anything_else_is_refused_and_never_raises(values: list[str]) -> None:
    assert AUTHENTICATOR.access(values) is None


def test_a_credential_says_which_secret_it_was_and_shows_nothing() -> None:
    credential = AUTHENTICATOR.credential([f"Bearer {WATCH}"])
    assert credential == Credential(AccessMode.READ_ONLY, WATCH)
    assert WATCH not in repr(credential)


def test_a_credential_is_held_while_its_secret_is_there_for_the_same_access() -> None:
    """R-M1: rotation."""
    old, new = Credential(AccessMode.FULL, FULL), Credential(AccessMode.FULL, "new-" + FULL)
    assert AUTHENTICATOR.holds(old)
    assert not AUTHENTICATOR.holds(new)
    overlap = Authenticator(((AccessMode.FULL, new.secret), (AccessMode.FULL, old.secret)))
    assert overlap.holds(old)
    assert overlap.holds(new)
    assert not Authenticator(((AccessMode.READ_ONLY, old.secret),)).holds(old)


def test_every_secret_is_compared_on_digests_of_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """K1, R-M1: in constant time, whichever was right and however long each is."""
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for given in (FULL, WATCH, "x", "é" * 10_000):
        compared.clear()
        AUTHENTICATOR.access([f"Bearer {given}"])
        assert compared == [(32, 32), (32, 32)]


def test_without_any_secret_nobody_passes() -> None:
    assert Authenticator(()).access(["Bearer "]) is None


def test_secrets_are_not_in_the_representation() -> None:
    assert "0123456789" not in repr(AUTHENTICATOR)
