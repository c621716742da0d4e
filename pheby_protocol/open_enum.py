"""Enumerations that keep values they do not know."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class OpenEnum(StrEnum):
    """A string enumeration of known values; an unknown value becomes a nameless member that keeps its text.

    The nameless member equals its text, is not listed and is not cached, so a hostile peer costs no memory.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = "UNKNOWN"
        member._value_ = value
        return member

    @property
    def known(self) -> bool:
        """Whether this version of the protocol names the value."""
        return self._value_ in type(self)._value2member_map_
