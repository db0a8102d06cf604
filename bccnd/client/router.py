"""Distributes what the daemon sends among a connection's inbox, its subscriptions, its callbacks and its requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, Generic, TypeVar
from weakref import ref

from bccnd.client.event_queues import Away, Event, EventQueue, Gap, Reconnected, Refusal
from bccnd.client.message import Message, to_bytes, with_payload
from bccnd.core.matching.patterns import DIALECTS

#: channels whose receivers are remembered
_CACHED: Final = 4096
#: a reply is a directed message that begins so, a token behind it; see `bccnd.client.request_reply`
REPLY: Final = b"reply:"

T = TypeVar("T")


class PatternTable(Generic[T]):
    """Values by patterns, and those that a channel matches, in the order in which they were added."""

    def __init__(self, dialect: str = "path") -> None:
        # Loaded by programs that need it, and by no others.
        from bccnd.core.matching.pattern_tree import PatternTree

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

    def remove(self, number: int) -> tuple[bytes, ...]:
        """Remove what `add` has numbered so; returns its patterns."""
        if self.values.pop(number, None) is None:
            return ()
        patterns = self._patterns.pop(number)
        for pattern in patterns:
            self._tree.remove(self._tree.compile(pattern), number)
        self._found.clear()
        return patterns

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


def call_listeners(
    listeners: PatternTable[Callable[[Message], T]], message: Message, failed: Callable[[Exception], None]
) -> list[T]:
    """Call the callbacks whose pattern a message matches; for one to everyone, or to this program, all of them. The
    errors of those that raise are passed to ``failed``, and the others are called all the same; returns their results.
    """
    results = []
    for number in listeners.find(message.chan) if message.form == "plain" else list(listeners.values):
        if number in listeners.values:  # a callback may have removed another one
            try:
                results.append(listeners.values[number](message))
            except Exception as error:  # noqa: BLE001 - whatever one raises, the others are called
                failed(error)
    return results


def raise_errors(errors: list[Exception]) -> None:
    """Raise the error of a callback; those of several as a group."""
    if len(errors) > 1:
        raise ExceptionGroup("several callbacks have raised", errors)
    if errors:
        raise errors[0]


class PendingReply:
    """A request that waits for a reply, or for the refusal of what was sent on its channel."""

    def __init__(self, chan: str) -> None:
        self.chan = chan
        self.answer: Message | Refusal | None = None


class Router:
    """Distributes events: a message goes to each subscription in use that it matches and to the callbacks, or else to
    the connection's own inbox; what is about the connection as a whole goes to all of them.

    Subscriptions are held weakly: one in use that the program has dropped is withdrawn.
    """

    def __init__(self, dialect: str = "path") -> None:
        self.inbox = EventQueue()
        #: whether there was ever anything beside the inbox; whether replies may come, also late ones
        self._routes = self._takes_replies = False
        self.listeners: PatternTable[Callable[[Message], object]] | None = None
        #: messages for callbacks
        self.listened = EventQueue()
        #: requests by their token
        self.replies: dict[bytes, PendingReply] = {}
        #: is told of each event but messages, for logging
        self.on_notice: Callable[[Event], None] = lambda _event: None
        #: whether `Away` is put into the queues, too
        self.shows_away = False
        #: called when the program has dropped a subscription; in the midst of whatever is going on, and by any thread
        self.on_dropped: Callable[[], None] = lambda: None
        self._dialect = dialect
        #: subscriptions that take messages, and all that exist
        self._active: PatternTable[ref[EventQueue]] | None = None
        self._known: dict[ref[EventQueue], int] = {}
        #: subscriptions that the program has dropped, for `take_dropped`
        self.dropped: deque[ref[EventQueue]] = deque()
        #: the queues, while what was read at once is put into them
        self._filled: list[EventQueue] = []
        #: whether the inbox may hold refusals
        self.has_refused = False

    def listen(self, pattern: str, callback: Callable[[Message], object]) -> None:
        if self.listeners is None:
            self.listeners = PatternTable(self._dialect)
            self._routes = True
        self.listeners.add(callback, to_bytes(pattern))

    def unlisten(self, pattern: str, callback: Callable[[Message], object]) -> bool:
        return self.listeners is not None and self.listeners.remove_value(callback, to_bytes(pattern))

    def call_next(self, failed: Callable[[Exception], None]) -> list[object]:
        """Call the callbacks for the next message, which there must be; returns their results."""
        event = self.listened.take()
        if not isinstance(event, Message) or self.listeners is None:
            return []
        return call_listeners(self.listeners, event, failed)

    def expect_reply(self, token: bytes, chan: str) -> PendingReply:
        """Take the reply with this token, until `forget_reply`."""
        self._takes_replies = self._routes = True
        pending = self.replies[token] = PendingReply(chan)
        return pending

    def forget_reply(self, token: bytes) -> None:
        del self.replies[token]

    # -- subscriptions

    def register(self, subscription: EventQueue) -> None:
        """Note that a subscription exists; it takes messages from `activate` on."""
        self._known[ref(subscription, self._on_dropped)] = 0

    def _on_dropped(self, one: ref[EventQueue]) -> None:
        # In the midst of anything, where garbage is collected: tables must not change now.
        self.dropped.append(one)
        self.on_dropped()

    def take_dropped(self) -> Iterator[bytes]:
        """Forget subscriptions that the program has dropped; gives the patterns of those that were in use."""
        while self.dropped:
            yield from self._forget(self.dropped.popleft())

    def activate(self, subscription: EventQueue) -> None:
        """Give a subscription the messages that match it, with those that still wait in the inbox."""
        if subscription.active or subscription.closed:
            return
        subscription.active = True
        one = ref(subscription)
        if self._active is None:
            self._active = PatternTable(self._dialect)
        self._routes = True
        number = self._known[one] = self._active.add(one, *subscription.patterns)
        kept: list[Event] = []
        for event in self.inbox.events:
            if isinstance(event, Message):
                taken = number in self._active.find(event.chan)
            else:
                taken = isinstance(event, Refusal) and to_bytes(event.key) in subscription.patterns
            if taken:
                subscription.put(event)
            else:
                kept.append(event)
        self.inbox.events.clear()
        self.inbox.events.extend(kept)

    def remove(self, subscription: EventQueue) -> None:
        self._forget(ref(subscription))

    def _forget(self, one: ref[EventQueue]) -> tuple[bytes, ...]:
        number = self._known.pop(one, 0)
        return self._active.remove(number) if self._active is not None else ()

    def inboxes(self) -> list[EventQueue]:
        """The connection's own inbox, and those of the subscriptions in use."""
        active = [one() for one in list(self._active.values.values())] if self._active is not None else ()
        return [self.inbox, *(one for one in active if one is not None)]

    # -- what has come

    def put_all(self, messages: list[Message]) -> None:
        """Distribute the messages of one packet."""
        if not self._routes and not self.inbox.is_full:  # one look a packet
            self.inbox.events.extend(messages)
            return
        alone = not self._filled
        if alone:
            self.begin_read()
        for message in messages:
            self.put_message(message)
        if alone:
            self.end_read()

    def begin_read(self) -> None:
        """Keep whole what is read at once, in each queue that is not full now."""
        self._filled = [self.listened, *self.inboxes()]
        for inbox in self._filled:
            inbox.has_room = not inbox.is_full

    def end_read(self) -> None:
        for inbox in self._filled:
            inbox.has_room = False
        self._filled = []

    def put_message(self, message: Message) -> None:
        """Distribute a message that came alone."""
        if not self._routes:
            self.inbox.put(message)
            return
        if self._takes_replies and message.form == "directed" and message.payload.startswith(REPLY):
            self._take_reply(message)
            return
        taken = False
        if (active := self._active) is not None:
            for number in active.find(message.chan):
                if (subscription := active.values[number]()) is not None:
                    subscription.put(message)
                    taken = True
        listeners = self.listeners
        if listeners is not None and (listeners.find(message.chan) if message.form == "plain" else listeners.values):
            self.listened.put(message)
        elif not taken:
            self.inbox.put(message)

    def _take_reply(self, message: Message) -> None:
        # One that comes too late, or to a question of another connection of this program, is dropped.
        token, _, payload = message.payload[len(REPLY) :].partition(b"|")
        pending = self.replies.get(token)
        if pending is not None and pending.answer is None:
            pending.answer = with_payload(message, payload)

    def put_notice(self, event: Gap | Reconnected | Away) -> None:
        self.on_notice(event)
        if isinstance(event, Away) and not self.shows_away:
            return
        for inbox in self.inboxes():
            inbox.put(event)

    def put_refusal(self, refusal: Refusal) -> None:
        """To the request or subscription that it is about, or else to the inbox."""
        self.on_notice(refusal)
        for pending in self.replies.values():
            if pending.chan == refusal.key and pending.answer is None:
                pending.answer = refusal
                return
        owner = self._owner(refusal, self.inboxes())
        owner.put(refusal)
        self.has_refused = self.has_refused or owner is self.inbox

    def _owner(self, refusal: Refusal, among: list[EventQueue]) -> EventQueue:
        key = to_bytes(refusal.key)
        return next((one for one in among if key in one.patterns), self.inbox)

    def is_ready(self, inbox: EventQueue) -> bool:
        """Whether `take_for` returns an event, or the queue is closed."""
        if inbox.events or inbox.closed:
            return True
        return self.has_refused and inbox is not self.inbox and bool(self.unowned())

    def take_for(self, inbox: EventQueue) -> Event | None:
        """Take the next event of a queue; of a subscription also a refusal that is about no subscription."""
        if inbox.events:
            return inbox.take()
        if not self.has_refused or inbox is self.inbox:
            return None
        return next(iter(self.take(self.unowned()[:1])), None)

    def take_refusals(self) -> list[Refusal]:
        """Take the refusals out of the inbox."""
        self.has_refused = False
        return self.take([event for event in self.inbox.events if isinstance(event, Refusal)])

    def unowned(self) -> list[Refusal]:
        """Refusals in the inbox that no subscription is about; whichever is in use raises them."""
        if not self.has_refused:
            return []
        known = [one for one in (held() for held in self._known) if one is not None]
        refused = [event for event in self.inbox.events if isinstance(event, Refusal)]
        self.has_refused = bool(refused)
        return [one for one in refused if self._owner(one, known) is self.inbox]

    def take(self, refused: list[Refusal]) -> list[Refusal]:
        for event in refused:
            self.inbox.events.remove(event)
        return refused
