"""bccnd for programs: `connect` to the daemon of this host (on asyncio `aio.connect`), or speak on the segment yourself
through an `Endpoint`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bccnd.client.bus import Connection, Event, Gap, Reconnected, Refusal, connect
from bccnd.client.message import Message
from bccnd.errors import BadKey, BccndError, BusError, EndpointError

if TYPE_CHECKING:
    from bccnd import aio
    from bccnd.client.endpoint import Endpoint
    from bccnd.client.keys import read_key, read_public_key

__all__ = [
    "BadKey",
    "BccndError",
    "BusError",
    "Connection",
    "Endpoint",
    "EndpointError",
    "Event",
    "Gap",
    "Message",
    "Reconnected",
    "Refusal",
    "aio",
    "connect",
    "read_key",
    "read_public_key",
]


def __getattr__(name: str) -> object:
    # Who only connects to the daemon does not wait for what speaks on the segment, or for asyncio.
    if name == "Endpoint":
        from bccnd.client.endpoint import Endpoint

        return Endpoint
    if name in ("read_key", "read_public_key"):
        from bccnd.client import keys

        return getattr(keys, name)
    if name == "aio":
        from importlib import import_module

        return import_module("bccnd.aio")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
