"""What a program receives beside messages, and the queues in which events wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Final, Generic, NamedTuple, TypeVar
from weakref import ref

from bccnd.client.message import Message, to_bytes
from bccnd.core.patterns import DIALECTS
from bccnd.errors import BusError

#: events that wait in one queue of a connection with several; further messages are dropped and reported by a `Gap`
MAX_EVENTS: Final = 1024
#: channels whose receivers are remembered
_CACHED: Final = 4096

#: refusals of the connection as a whole: the daemon does not serve this program, for now
NOT_SERVED: Final = ("too_many_clients", "too_many_clients_of_user", "not_admitted")


class Gap(NamedTuple):
    """At this place ``lost`` messages were dropped, because this program did not read fast enough."""

    lost: int


class Refusal(NamedTuple):
    """The daemon refused a frame; ``key`` is the channel or pattern that it was about. With an empty key and
    ``too_many_clients``, ``too_many_clients_of_user`` or ``not_admitted`` it does not serve this program, for now."""

    reason: str
    key: str


class Reconnected(NamedTuple):
    """Here the daemon was away, for ``seconds`` at most. What was sent in the meantime is missing, and how much that
    was is unknown; subscriptions, tag and modes are in force again."""

    seconds: float


T = TypeVar("T")
Event = Message | Gap | Refusal | Reconnected
Callback = Callable[[Message], object]


def raise_refused(event: Event, optional: Iterable[str] = ()) -> None:
    """Raise BusError if the event is a refusal, unless it is about an ``optional`` request."""
    if not isinstance(event, Refusal) or event.key in optional:
        return
    if not event.key and event.reason in NOT_SERVED:
        raise BusError(event.reason, "the daemon does not serve this program now")
    raise BusError(event.reason, f"the daemon refused {event.key!r}")


class EventQueue:
    """Events that wait to be received, the oldest first; messages match ``patterns``. ``lost`` and ``reconnects`` add
    up what the `Gap` and `Reconnected` events taken so far report."""

    closed = False

    def __init__(self, patterns: tuple[bytes, ...] = ()) -> None:
        self.patterns = patterns
        self.events: deque[Event] = deque()
        self.lost = 0
        self.reconnects = 0

    def take(self) -> Event:
        """The next event; there must be one."""
        event = self.events.popleft()
        if isinstance(event, Gap):
            self.lost += event.lost
        elif isinstance(event, Reconnected):
            self.reconnects += 1
        return event

    def put(self, event: Event) -> None:
        """Append an event; beyond `MAX_EVENTS` a message is counted in a `Gap` at the end instead."""
        events = self.events
        last = events[-1] if len(events) >= MAX_EVENTS else None
        if last is None or isinstance(event, Refusal):
            events.append(event)
        elif isinstance(event, Reconnected):
            if not isinstance(last, Gap | Reconnected):
                events.append(event)
        else:
            lost = event.lost if isinstance(event, Gap) else 1
            if isinstance(last, Gap):
                events[-1] = Gap(last.lost + lost)
            else:
                events.append(Gap(lost))


class PatternTable(Generic[T]):
    """Values by patterns, and those that a channel matches, in the order in which they were added."""

    def __init__(self, dialect: str = "path") -> None:
        # Loaded by programs that need it, and by no others.
        from bccnd.core.pattern_tree import PatternTree

        self.values: dict[int, T] = {}
        self._patterns: dict[int, tuple[bytes, ...]] = {}
        self._tree: PatternTree[int] = PatternTree(DIALECTS[dialect])
        self._numbers = count(1)
        self._found: dict[str, list[int]] = {}

    def add(self, value: T, *patterns: bytes) -> int:
        number = next(self._numbers)
        self.values[number] = value
        self._patterns[number] = patterns
        for pattern in patterns:
            self._tree.add(self._tree.compile(pattern), number)
        self._found.clear()
        return number

    def remove(self, number: int) -> None:
        if self.values.pop(number, None) is not None:
            for pattern in self._patterns.pop(number):
                self._tree.remove(self._tree.compile(pattern), number)
            self._found.clear()

    def remove_value(self, value: T, pattern: bytes) -> bool:
        """Take back one `add`; False when there was none."""
        found = next((n for n, one in self.values.items() if one == value and self._patterns[n] == (pattern,)), 0)
        self.remove(found)
        return bool(found)

    def find(self, chan: str) -> list[int]:
        numbers = self._found.get(chan)
        if numbers is None:
            if len(self._found) >= _CACHED:
                self._found.clear()
            numbers = self._found[chan] = sorted(self._tree.match(to_bytes(chan)))
        return numbers


def call_listeners(listeners: PatternTable[Callback], message: Message) -> None:
    """Call the callbacks whose pattern a message matches; for one to everyone, or to this program, all of them."""
    for number in listeners.find(message.chan) if message.form == "plain" else list(listeners.values):
        if number in listeners.values:  # a callback may have removed another one
            listeners.values[number](message)


class Router:
    """Distributes events: a message goes to each subscription in use that it matches and to the callbacks, or else to
    the connection's own inbox; what is about the connection as a whole goes to all of them.

    Subscriptions are held weakly: one that the program has dropped takes nothing any more.
    """

    def __init__(self, dialect: str = "path") -> None:
        self.inbox = EventQueue()
        #: takes each message: `_route` once there is anything beside the inbox
        self.put_message: Callable[[Message], object] = self.inbox.events.append
        self.listeners: PatternTable[Callback] | None = None
        #: messages for callbacks
        self.listened: deque[Message] = deque()
        self._dialect = dialect
        #: subscriptions that take messages, and all that exist
        self._active: PatternTable[ref[EventQueue]] | None = None
        self._known: dict[ref[EventQueue], int] = {}
        #: whether the inbox may hold refusals
        self._refused = False

    def listen(self, pattern: str, callback: Callback) -> None:
        if self.listeners is None:
            self.listeners = PatternTable(self._dialect)
            self.put_message = self._route
        self.listeners.add(callback, to_bytes(pattern))

    def unlisten(self, pattern: str, callback: Callback) -> bool:
        return self.listeners is not None and self.listeners.remove_value(callback, to_bytes(pattern))

    def dispatch(self) -> int:
        """Call the callbacks for the next message, if there is one; how many messages that were."""
        if not self.listened or self.listeners is None:
            return 0
        call_listeners(self.listeners, self.listened.popleft())
        return 1

    def register(self, subscription: EventQueue) -> None:
        """Note that a subscription exists; it takes messages from `activate` on."""
        self._known[ref(subscription, self._forget)] = 0

    def activate(self, subscription: EventQueue) -> None:
        """Give a subscription the messages that match it, with those that still wait in the inbox."""
        one = ref(subscription)
        if self._known.get(one) != 0:
            return
        if self._active is None:
            self._active = PatternTable(self._dialect)
        self.put_message = self._route
        number = self._known[one] = self._active.add(one, *subscription.patterns)
        kept: list[Event] = []
        for event in self.inbox.events:
            if isinstance(event, Message):
                taken = number in self._active.find(event.chan)
            else:
                taken = isinstance(event, Refusal) and to_bytes(event.key) in subscription.patterns
            (subscription.events if taken else kept).append(event)
        self.inbox.events.clear()
        self.inbox.events.extend(kept)

    def remove(self, subscription: EventQueue) -> None:
        self._forget(ref(subscription))

    def _forget(self, one: ref[EventQueue]) -> None:
        if self._active is not None:
            self._active.remove(self._known.get(one, 0))
        self._known.pop(one, None)
        if not self.is_split:
            self.put_message = self.inbox.events.append

    @property
    def is_split(self) -> bool:
        """Whether there is anything beside the inbox."""
        return self.listeners is not None or bool(self._active and self._active.values)

    def inboxes(self) -> list[EventQueue]:
        """The connection's own inbox, and those of the subscriptions in use."""
        active = [one() for one in list(self._active.values.values())] if self._active is not None else ()
        return [self.inbox, *(one for one in active if one is not None)]

    def _route(self, message: Message) -> None:
        taken = False
        for number in self._active.find(message.chan) if self._active is not None else ():
            if (subscription := self._active.values[number]()) is not None:  # type: ignore[union-attr]
                subscription.put(message)
                taken = True
        listeners = self.listeners
        if listeners is not None and (listeners.find(message.chan) if message.form == "plain" else listeners.values):
            self.listened.append(message)
        elif not taken:
            self.inbox.put(message)

    def put_notice(self, event: Gap | Reconnected) -> None:
        if not self.is_split:
            self.inbox.events.append(event)
            return
        for inbox in self.inboxes():
            inbox.put(event)

    def put_refusal(self, refusal: Refusal) -> None:
        """To the subscription that it is about, or else to the inbox."""
        owner = self._owner(refusal, self.inboxes())
        owner.put(refusal)
        self._refused = self._refused or owner is self.inbox

    def _owner(self, refusal: Refusal, among: list[EventQueue]) -> EventQueue:
        key = to_bytes(refusal.key)
        return next((one for one in among if key in one.patterns), self.inbox)

    def take_refusals(self) -> list[Refusal]:
        """Take the refusals out of the inbox."""
        self._refused = False
        return self.take([event for event in self.inbox.events if isinstance(event, Refusal)])

    def unowned(self) -> list[Refusal]:
        """Refusals in the inbox that no subscription is about; whichever is in use raises them."""
        if not self._refused:
            return []
        known = [one for one in (held() for held in self._known) if one is not None]
        refused = [event for event in self.inbox.events if isinstance(event, Refusal)]
        self._refused = bool(refused)
        return [one for one in refused if self._owner(one, known) is self.inbox]

    def take(self, refused: list[Refusal]) -> list[Refusal]:
        for event in refused:
            self.inbox.events.remove(event)
        return refused
