"""bccnd for programs: `connect` to the daemon of this host, or speak on the segment yourself through an `Endpoint`."""

from bccnd.client.bus import Connection, Event, Gap, Refusal, connect
from bccnd.client.endpoint import Endpoint
from bccnd.client.keys import read_key, read_public_key
from bccnd.client.message import Message
from bccnd.errors import BadKey, BccndError, BusError, EndpointError

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
    "Refusal",
    "connect",
    "read_key",
    "read_public_key",
]
