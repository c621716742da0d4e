"""The core's transport on aiohttp: WebSocket and HTTP on one port. Moves text and files, knows no messages."""

from .listener import Listener

__all__ = ["Listener"]
