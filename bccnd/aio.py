"""bccnd for asyncio: `await bccnd.aio.connect()` to the daemon of this host."""

from __future__ import annotations

from bccnd.client.aio import AsyncConnection, connect

__all__ = ["AsyncConnection", "connect"]
