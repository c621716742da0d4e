"""Pheby's server core: transport-agnostic, Hermes-free. What it needs of the world is in `ports`."""

from .config import ServerConfig
from .ports import Clock, GatewayEvents, HermesPort, IdSource
from .server import Server

__all__ = ["Clock", "GatewayEvents", "HermesPort", "IdSource", "Server", "ServerConfig"]
