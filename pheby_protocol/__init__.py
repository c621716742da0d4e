"""Pheby's wire protocol: messages, codec, state tables, the sans-I/O connection. Pure: no clock, randomness or I/O."""

from .codec import DecodeError, UnknownMessage, decode, encode
from .connection import Connection, Role
from .errors import CloseCode, ErrorCode
from .version import PROTOCOL_VERSION, SUPPORTED_VERSIONS

__all__ = [
    "PROTOCOL_VERSION",
    "SUPPORTED_VERSIONS",
    "CloseCode",
    "Connection",
    "DecodeError",
    "ErrorCode",
    "Role",
    "UnknownMessage",
    "decode",
    "encode",
]
