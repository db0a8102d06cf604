"""bccnd for programs: `connect` to the daemon of this host, or speak on the segment yourself through an `Endpoint`."""

from bccnd.client.bus import Connection, Event, Gap, Refusal, connect
from bccnd.client.endpoint import Endpoint
from bccnd.client.message import Message
from bccnd.errors import BccndError, BusError, EndpointError

__all__ = [
    "BccndError",
    "BusError",
    "Connection",
    "Endpoint",
    "EndpointError",
    "Event",
    "Gap",
    "Message",
    "Refusal",
    "connect",
]
