"""What a program receives beside messages, and the queues in which events wait for it."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from bccnd.client.message import Message
from bccnd.errors import BusError

#: events that wait in one queue of a connection with several; further messages are dropped and reported by a `Gap`
MAX_EVENTS: Final = 1024
#: events that wait in the queue of a connection itself, which other calls fill, too
MAX_INBOX: Final = 16_384

#: refusals of the connection as a whole: the daemon does not serve this program, for now
NOT_SERVED: Final = ("too_many_clients", "too_many_clients_of_user", "not_admitted")


class Gap(NamedTuple):
    """``lost`` messages were dropped at this point, because this program did not read fast enough; 0 is an unknown
    number, as the daemon was killed or has crashed."""

    lost: int


class Refusal(NamedTuple):
    """The daemon refused a frame; ``key`` is its channel or pattern. If the key is empty and the reason is
    ``too_many_clients``, ``too_many_clients_of_user`` or ``not_admitted``, the daemon does not serve this program
    now."""

    reason: str
    key: str


class Reconnected(NamedTuple):
    """The daemon was away at this point, for at most ``seconds``. Messages sent meanwhile are missing, and their number
    is unknown. Subscriptions, tag and modes are restored."""

    seconds: float


class Away(NamedTuple):
    """The connection to the daemon was lost at this point, for this reason; `Reconnected` follows when the daemon is
    back. Only connections made with ``connect(away=True)`` receive this."""

    reason: str


Event = Message | Gap | Refusal | Reconnected | Away
#: what `listen` takes: a function that is called with each message; on asyncio also one that returns an awaitable
Callback = Callable[[Message], None]
AsyncCallback = Callable[[Message], Awaitable[object] | None]


def raise_refused(event: Event) -> None:
    """Raise BusError if the event is a refusal."""
    if not isinstance(event, Refusal):
        return
    if not event.key and event.reason in NOT_SERVED:
        raise BusError(event.reason, "the daemon does not serve this program now")
    raise BusError(event.reason, f"the daemon refused {event.key!r}")


class EventQueue:
    """Events that wait to be received, the oldest first; messages match ``patterns``. ``lost`` and ``reconnects`` add
    up what the `Gap` and `Reconnected` events taken so far report (unknown numbers are not in ``lost``); ``dropped``
    counts the messages for which there was no room here, where ``limit`` events wait."""

    closed = False
    #: whether a subscription takes messages; it begins to, once
    active = False

    def __init__(self, patterns: tuple[bytes, ...] = (), limit: int = sys.maxsize) -> None:
        self.patterns = patterns
        self.limit = limit
        #: set while messages are put in that were read at once, when this was not full
        self.has_room = False
        self.events: deque[Event] = deque()
        self.lost = 0
        self.reconnects = 0
        self.dropped = 0

    @property
    def is_full(self) -> bool:
        return len(self.events) >= self.limit

    def take(self) -> Event:
        """The next event; there must be one."""
        event = self.events.popleft()
        if type(event) is Message:
            return event
        if isinstance(event, Gap):
            self.lost += event.lost
        elif isinstance(event, Reconnected):
            self.reconnects += 1
        return event

    def put(self, event: Event) -> None:
        """Append an event; without room, a message is counted in a `Gap` at the end instead."""
        events = self.events
        if len(events) < self.limit or self.has_room or isinstance(event, Refusal):
            events.append(event)
            return
        last = events[-1] if events else None
        if isinstance(event, Reconnected | Away):
            if not isinstance(last, Gap | Reconnected):
                events.append(event)
        else:
            if isinstance(event, Message):
                self.dropped += 1
            lost = event.lost if isinstance(event, Gap) else 1
            if isinstance(last, Gap):
                events[-1] = Gap(last.lost + lost if last.lost and lost else 0)
            else:
                events.append(Gap(lost))
