"""bccnd for programs: `connect` to the daemon of this host (on asyncio `aio.connect`), or speak on the segment yourself
through an `Endpoint`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from bccnd import compiled_modules

if TYPE_CHECKING:
    from bccnd import aio
    from bccnd.client.bus import Connection, Subscription, connect
    from bccnd.client.event_queues import Away, Callback, Event, Gap, Reconnected, Refusal
    from bccnd.client.message import Data, Message
    from bccnd.endpoint.endpoint import Endpoint
    from bccnd.errors import BadKey, BccndError, BusError, ConnectionLost, EndpointError, RequestTimeout
    from bccnd.key_files import read_key, read_public_key

__all__ = [
    "Away",
    "BadKey",
    "BccndError",
    "BusError",
    "Callback",
    "Connection",
    "ConnectionLost",
    "Data",
    "Endpoint",
    "EndpointError",
    "Event",
    "Gap",
    "Message",
    "Reconnected",
    "Refusal",
    "RequestTimeout",
    "Subscription",
    "aio",
    "connect",
    "read_key",
    "read_public_key",
]

compiled_modules.install()

_BUS = ("Connection", "Subscription", "connect")
_EVENTS = ("Away", "Callback", "Event", "Gap", "Reconnected", "Refusal")
_ERRORS = ("BadKey", "BccndError", "BusError", "ConnectionLost", "EndpointError", "RequestTimeout")
#: the module of each name; it is loaded when the name is used, and never by the daemon
_WHERE = {
    **dict.fromkeys(_BUS, "client.bus"),
    **dict.fromkeys(_EVENTS, "client.event_queues"),
    **dict.fromkeys(("Data", "Message"), "client.message"),
    **dict.fromkeys(_ERRORS, "errors"),
    "Endpoint": "endpoint.endpoint",
    "read_key": "key_files",
    "read_public_key": "key_files",
}


def __getattr__(name: str) -> object:
    if name == "aio":
        return import_module("bccnd.aio")
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"bccnd.{_WHERE[name]}"), name)
