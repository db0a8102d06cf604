"""The state of a program's connection to the daemon, without I/O: what is subscribed, what is to be sent, what has
come, and when to connect again.

A transport passes in what happens (`connected`, `feed`, `disconnected`, `connect_failed`), sends what `data_to_send`
gives, and comes back after `next_timeout`. There is no socket and no clock here; times are passed in, in seconds
(monotonic).

Invariant: subscriptions, tag and modes are restored on each connection before anything else is sent; a frame is sent
at most once; where messages may be missing, an event says so.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator
from itertools import count
from typing import Final

from bccnd.client.event_queues import NOT_SERVED, Away, Event, Gap, Reconnected, Refusal
from bccnd.client.message import bare_message, check_key, message_reader, to_bytes, to_text
from bccnd.client.outgoing import Outgoing, PendingRequests, Request
from bccnd.client.router import Router
from bccnd.core.wire import frames
from bccnd.errors import BadFrame, BusError, ConnectionLost, RequestTimeout

#: seconds to wait for an answer of the daemon, or for the daemon to come back
PATIENCE: Final = 5.0
#: seconds between attempts to connect again: the first one, and the most that doubling leads to
SHORTEST: Final = 0.05
LONGEST: Final = 2.0

#: requested on every connection; a bus that does not know it refuses it, and is used without
_OPTIONAL: Final = (to_text(frames.META_ON), to_text(frames.BATCH_ON))

#: bytes of a pattern that one packet can hold
_LONGEST_PATTERN: Final = frames.MAX_PACKET - len(frames.unsubscribe(b""))


def _add(counts: Counter[bytes], pattern: bytes, times: int) -> None:
    counts[pattern] += times
    if not counts[pattern]:
        del counts[pattern]


class Session:
    """One program's connections to the daemon, one after another. ``ready`` is true while messages may be sent;
    ``why`` is why the daemon is away; ``refused_by`` the reason why a daemon that is there does not serve this program.

    With ``batch`` the daemon is asked to send messages that wait in one packet, with ``meta`` for the sender of each.
    With ``reconnect=False`` the first loss is the end; with ``restores`` the first connection is made as all others;
    ``longest`` bounds the seconds between attempts to connect.
    """

    def __init__(
        self,
        path: str = "",
        *,
        batch: bool = True,
        meta: bool = True,
        reconnect: bool = True,
        restores: bool = False,
        dialect: str | None = None,
        longest: float | None = None,
    ) -> None:
        self.path = path
        self.router = Router(dialect or "path")
        #: a first connection may send at once: there is nothing to restore
        self.ready = not restores
        self.over = False
        self.why = ""
        self.refused_by = ""
        self.queue: deque[Outgoing] = deque()
        #: sent before the queue, in place of an earlier one that was not sent yet
        self.report = b""
        self._meta = meta
        self._reconnect = reconnect
        self._over_why = ""
        self._longest = LONGEST if longest is None else longest
        self._subscribed: Counter[bytes] = Counter()
        #: restored on each connection, the modes by name
        self.tag = b""
        self.modes: dict[str, bytes] = {}
        if dialect is not None:
            self.modes["dialect"] = frames.request(frames.DIALECT, to_bytes(dialect))
        if batch:
            self.modes["!/bccn/batch"] = frames.request(frames.BATCH_ON)
        self._read_message = message_reader()
        self._opening: deque[bytes] = deque()
        #: how many times each pattern is still to be subscribed to, or (negative) unsubscribed from
        self._changes: Counter[bytes] = Counter()
        #: patterns whose last `drop` may be refused
        self._dropped: deque[bytes] = deque(maxlen=64)
        self._requests = PendingRequests()
        self._tokens = count(1)
        self._greeting: Request | None = None
        self._is_connected = False
        self._wait = min(SHORTEST, self._longest)
        self._connect_at = 0.0
        #: since when the connection is away, until something has come over the next one
        self._away_since: float | None = None
        #: refusals over a connection on which nothing else has come
        self._delayed_refusals: list[Refusal] = []
        self._served = False
        self._not_served = ""
        self._published = 0
        self._confirmed = 0
        self._in_doubt = False

    @property
    def daemon(self) -> str:
        return f"the daemon at {self.path}"

    # -- what is restored on each connection

    def subscribe(self, *patterns: bytes) -> None:
        """Add one subscription per pattern. Raises BusError, and adds none: bad_pattern, too_long."""
        for pattern in patterns:
            check_key(pattern, "bad_pattern")
        if (longest := max(map(len, patterns), default=0)) > _LONGEST_PATTERN:
            raise BusError("too_long", f"a pattern of {longest} bytes is more than the socket takes")
        for pattern in patterns:
            self._subscribed[pattern] += 1
            self._change(pattern, 1)

    def unsubscribe(self, pattern: bytes) -> bool:
        """Remove one subscription; False if there is none."""
        if pattern not in self._subscribed:
            return False
        _add(self._subscribed, pattern, -1)
        self._change(pattern, -1)
        return True

    def _change(self, pattern: bytes, times: int) -> None:
        """Send a change; one that was not sent yet is undone by its opposite, so that what waits does not grow."""
        if self._is_connected:
            _add(self._changes, pattern, times)

    def change(self, pattern: bytes, *, wanted: bool) -> None:
        """Subscribe to a pattern, or unsubscribe, unless that is done already."""
        if wanted != (pattern in self._subscribed):
            (self.subscribe if wanted else self.unsubscribe)(pattern)

    def drop(self, pattern: bytes) -> None:
        """Unsubscribe from a pattern that may have been refused."""
        self._dropped.append(pattern)
        self.unsubscribe(pattern)

    def ask_again(self, pattern: bytes) -> None:
        """Send a subscription again that was refused."""
        if pattern in self._subscribed:
            self._change(pattern, 1)

    @property
    def is_announced(self) -> bool:
        """Whether every change of patterns was sent; while the daemon is away, there are none for it."""
        return not self._changes

    # -- what is to be sent

    def connected(self) -> None:
        """The transport has connected: modes and subscriptions are sent first, and after a loss nothing else before the
        daemon has confirmed them."""
        self._drop_unused()
        self._is_connected = True
        if self._meta:
            self._opening.append(frames.request(frames.META_ON))
        if self.tag:
            self._opening.append(frames.request(frames.TAG, self.tag))
        self._opening.extend(self.modes.values())
        if not self.ready:
            for pattern, times in self._subscribed.items():
                self._opening.extend([frames.subscribe(pattern)] * times)
            self._greeting = self.sync()
            self._expect(self._greeting)
            self._opening.append(self._greeting.frame)

    @property
    def has_data(self) -> bool:
        return bool(self._opening or self._changes or self.report or (self.queue and self.ready) or self.router.dropped)

    def _drop_unused(self) -> None:
        """Unsubscribe from the patterns of subscriptions that the program has dropped."""
        for pattern in self.router.take_dropped():
            self.drop(pattern)

    def data_to_send(self) -> Generator[bytes, None, None]:
        """Frames that are due, in order. Each counts as sent when the next one is asked for; where the socket does not
        take one, stop iterating, and it comes again."""
        while self._opening:
            yield self._opening[0]
            self._opening.popleft()
        self._drop_unused()
        while self._changes:
            pattern, times = next(iter(self._changes.items()))
            yield frames.subscribe(pattern) if times > 0 else frames.unsubscribe(pattern)
            self._change(pattern, -1 if times > 0 else 1)
        if self.report:
            yield self.report
            self.report = b""
        while self.queue and self.ready:
            outgoing = self.queue[0]
            if not outgoing.done:
                yield outgoing.frame
            self.queue.popleft()
            if not outgoing.done:
                outgoing.sent()

    def refuse_head(self, error: BusError) -> None:
        """The socket will never take the frame that `data_to_send` has just given: a message or request."""
        self.queue[0].fail(error)

    def enqueue(self, outgoing: Outgoing, now: float) -> None:
        """Send a frame behind those that wait. Raises ConnectionLost when this is over."""
        self.check()
        self.queue.append(outgoing)
        if not self.ready:
            self._limit(outgoing, now)

    def withdraw(self, outgoing: Outgoing) -> None:
        """Do not send a frame that was not sent yet."""
        if outgoing in self.queue:
            self.queue.remove(outgoing)

    def check(self) -> None:
        """Raises ConnectionLost when this is over."""
        if self.over:
            raise ConnectionLost("connection_lost", self._over_why)

    def away_error(self, waited: float) -> BusError:
        """The daemon has not come back in time, or does not serve this program."""
        why = f"does not serve this program now: {self.refused_by}" if self.refused_by else f"is gone: {self.why}"
        return ConnectionLost("connection_lost", f"{self.daemon} {why} (waited for {waited:g} s)")

    def timeout_error(self, timeout: float) -> BusError:
        """A request was not answered within so many seconds."""
        if not self.ready:
            return self.away_error(timeout)
        return RequestTimeout("no_answer", f"{self.daemon} did not answer within {timeout:g} s")

    def published(self, count: int = 1) -> None:
        """Messages were sent."""
        self._published += count

    # -- times

    def next_timeout(self, now: float) -> float | None:
        """Seconds until the transport has to connect, or `expire` has something to do; None for neither."""
        due = [one.deadline for one in self.queue if one.deadline is not None][:1] if not self.ready else []
        if not self._is_connected and not self.over:
            due.append(self._connect_at)
        return max(0.0, min(due) - now) if due else None

    def may_connect(self, now: float) -> bool:
        return not self._is_connected and not self.over and now >= self._connect_at

    def expire(self, now: float) -> None:
        """Let frames fail that have waited too long for a daemon that is away."""
        for outgoing in [one for one in self.queue if one.deadline is not None and one.deadline <= now]:
            self.queue.remove(outgoing)
            outgoing.fail(self.away_error(PATIENCE))

    def _limit(self, outgoing: Outgoing, now: float) -> None:
        if not outgoing.patient and outgoing.deadline is None:
            outgoing.deadline = now + PATIENCE

    def _pause(self, now: float, jitter: float) -> None:
        """Set the next attempt to connect; ``jitter`` (0 to 1) spreads programs that have lost the same daemon over
        the second half of the time."""
        wait, self._wait = self._wait, min(self._longest, 2 * self._wait)
        self._connect_at = now + wait * (0.5 + 0.5 * jitter)

    # -- requests

    def sync(self) -> Request:
        # The answer repeats the payload: one that comes too late is not taken for that of another sync.
        return Request(self._expect, frames.SYNC, b"%d of this client" % next(self._tokens))

    def request(self, key: bytes, payload: bytes | None = None) -> list[Request]:
        """The requests to send, one after the other, to have one answered, which is the last.

        Where a caller has given up on an answer that may still come, a sync goes before it: its answer means that
        earlier requests are over. Raises BusError: unknown_control.
        """
        check_key(key, "unknown_control")
        request = Request(self._expect, key, payload)
        if not self._requests.has_abandoned:
            return [request]
        marker = self.sync()
        marker.abandoned = True
        return [marker, request]

    def accepted(self, key: bytes, payload: bytes | None = None) -> list[Request]:
        """The requests to send to have one accepted that is answered by a refusal only: with a sync behind it."""
        return [*self.request(key, payload), self.sync()]

    def _expect(self, request: Request) -> None:
        """A request was sent."""
        request.published = self._published
        self._requests.append(request)

    def check_confirmed(self) -> None:
        """Raises ConnectionLost, once, if a daemon had gone before it had confirmed what was published."""
        in_doubt, self._in_doubt = self._in_doubt, False
        if in_doubt:
            detail = "ended before it confirmed all messages: it is unknown which of them were sent"
            raise ConnectionLost("connection_lost", f"{self.daemon} {detail}")

    # -- what has come

    @property
    def events(self) -> deque[Event]:
        """Events for which no subscription object is responsible."""
        return self.router.inbox.events

    def feed(self, packet: bytes, now: float, clock_ns: int) -> None:
        """Make events or an answer of a packet that came ``now``; ``clock_ns`` is the wall clock, in nanoseconds.
        Raises BadFrame; of a batch with a fault nothing is taken.

        Batches may come unasked, too: some may be under way to a client that has just switched them off.
        """
        message = self._read_message(packet)
        if message is None and packet.startswith(b"MSG ") and 0 in packet:
            message = bare_message(packet, clock_ns)
        if message is not None:
            if not self._served:
                self._confirm_served(now)
            self.router.put_message(message)
        elif packet.startswith(frames.MSGS):
            read = self._read_message
            messages = [read(frame) or bare_message(frame, clock_ns) for frame in frames.read_batch(packet)]
            if not self._served:
                self._confirm_served(now)
            self.router.put_all(messages)
        else:
            self._feed_control(packet, now)

    def _feed_control(self, packet: bytes, now: float) -> None:
        _, key, payload = frames.read(packet)
        if key == frames.GAP:
            if not payload.isdigit() or len(payload) > 20:
                raise BadFrame("bad_gap")
            self._confirm_served(now)
            self.router.put_notice(Gap(int(payload)))
        elif key == frames.ERROR:
            reason, _, about = payload.partition(b" ")
            self._refused(Refusal(to_text(reason), to_text(about)))
        else:
            self._confirm_served(now)
            self._answered(key, payload)

    def _confirm_served(self, now: float) -> None:
        """Something has come that a daemon sends only to clients that it serves."""
        if self._served:
            return
        self._served = True
        if self._away_since is not None:
            self.router.put_notice(Reconnected(max(0.0, now - self._away_since)))
            self._away_since = None
        self._release_refusals()

    def _release_refusals(self) -> None:
        for refusal in self._delayed_refusals:
            self.router.put_refusal(refusal)
        self._delayed_refusals = []

    def _refused(self, refusal: Refusal) -> None:
        request = self._requests.take_refused(refusal)
        if request is not None:
            request.refuse(refusal)
            if not request.abandoned:
                return
        if refusal.key in _OPTIONAL:
            return
        if refusal.reason == "not_subscribed" and to_bytes(refusal.key) in self._dropped:
            return
        if not self._served and refusal.reason in NOT_SERVED:
            self._not_served = refusal.reason
        self._delayed_refusals.append(refusal)
        if self._away_since is None:
            self._release_refusals()

    def _answered(self, key: bytes, payload: bytes) -> None:
        request = self._requests.take_answered(key, payload)
        if request is None:
            return
        if key == frames.SYNC:
            self._confirmed = max(self._confirmed, request.published)
        if request is self._greeting:
            self._greeting = None
            self.ready = True
            self.refused_by = ""
            self._wait = min(SHORTEST, self._longest)
            for outgoing in self.queue:
                outgoing.deadline = None
        request.settle(payload)

    # -- the loss of a connection

    def connect_failed(self, why: str, now: float, jitter: float) -> None:
        self.why = why
        self._pause(now, jitter)

    def disconnected(self, why: str, since: float, now: float, jitter: float) -> None:
        """The connection has ended; it was last known to be there at ``since``."""
        self.why = why
        self._is_connected = self.ready = False
        self._in_doubt = self._in_doubt or self._confirmed < self._published
        self._confirmed = self._published
        if self._away_since is None:
            self._away_since = since
            self.router.put_notice(Away(why))
        if not self._served and self._not_served:
            # The daemon is there, but does not serve this program. That is an event once, however often it happens.
            if self._not_served != self.refused_by:
                self._release_refusals()
            self.refused_by = self._not_served
            self._wait = self._longest
        self._delayed_refusals = []
        self._served = False
        self._not_served = ""
        self._greeting = None
        self._opening.clear()
        self._changes.clear()
        self.report = b""
        self._pause(now, jitter)
        self._requests.settle_all()
        if not self._reconnect:
            self.end(f"{self.daemon} is gone: {why}")
        for outgoing in self.queue:
            self._limit(outgoing, now)

    def end(self, why: str) -> None:
        """This is over: all that waits fails."""
        self.over = True
        self._over_why = why
        while self.queue:
            self.queue.popleft().fail(ConnectionLost("connection_lost", why))
        self._requests.settle_all()
