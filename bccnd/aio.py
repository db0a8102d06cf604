"""bccnd for asyncio: `async with bccnd.aio.connect() as bus` connects to the daemon of this host."""

from __future__ import annotations

from bccnd.client.aio import AsyncConnection, AsyncSubscription, connect
from bccnd.client.event_queues import AsyncCallback

__all__ = ["AsyncCallback", "AsyncConnection", "AsyncSubscription", "connect"]
