"""bccnd for asyncio: `async with bccnd.aio.connect() as bus` connects to the daemon of this host."""

from __future__ import annotations

from bccnd.client.aio import AsyncConnection, AsyncSubscription, connect

__all__ = ["AsyncConnection", "AsyncSubscription", "connect"]
