"""bccnd for programs: `connect` to the daemon of this host, subscribe, publish, and iterate over messages."""

from bccnd.client.bus import Connection, Event, Gap, Message, Refusal, connect
from bccnd.errors import BccndError, BusError

__all__ = ["BccndError", "BusError", "Connection", "Event", "Gap", "Message", "Refusal", "connect"]
