"""What an endpoint has received: queues and totals by channel, and the messages that are recognized as repeated.

Invariant: nothing grows without a bound, whatever others send.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from hashlib import blake2b
from itertools import count
from typing import Any, Final, NamedTuple

from bccnd.client.message import Message
from bccnd.core.wire.verdicts import NAMES

#: channels whose queues and totals are kept; the one silent for longest goes first
MAX_CHANNELS: Final = 4096
#: messages that wait in all channels together; newer ones are dropped
MAX_QUEUED: Final = 10_000
#: messages remembered to recognize repeated ones, and sources remembered for that; the oldest goes first
MAX_REMEMBERED: Final = 65_536


class _Channel:
    __slots__ = ("queue", "times", "total")

    def __init__(self, speed_window: int) -> None:
        self.queue: deque[Message] = deque()
        self.total = 0
        self.times: deque[float] = deque(maxlen=speed_window)

    def speed(self, now: float) -> float:
        """Messages per second since the first one of the window."""
        return len(self.times) / max(now - self.times[0], 1e-6) if self.times else 0.0


class ChannelQueues:
    """Messages that wait, by channel, and how many came; with a ``speed_window`` how fast."""

    def __init__(self, speed_window: int) -> None:
        self._speed_window = speed_window
        self._channels: OrderedDict[str, _Channel] = OrderedDict()
        #: those of them in which messages wait
        self.waiting: dict[str, _Channel] = {}
        self._all = _Channel(speed_window)
        self._queued = 0
        self._dropped = 0

    def count(self, message: Message) -> None:
        """Count a message that has come."""
        channel = self._channels.get(message.chan)
        if channel is None:
            if len(self._channels) >= MAX_CHANNELS:
                self._forget_channel()
            channel = self._channels[message.chan] = _Channel(self._speed_window)
        self._channels.move_to_end(message.chan)
        channel.total += 1
        self._all.total += 1
        if self._speed_window:
            now = message.received_ns * 1e-9
            channel.times.append(now)
            self._all.times.append(now)

    def put(self, message: Message) -> None:
        """Queue a message that was counted, or drop it where there is no room."""
        if self._queued >= MAX_QUEUED:
            self._dropped += 1
            return
        channel = self.waiting[message.chan] = self._channels[message.chan]
        channel.queue.append(message)
        self._queued += 1

    def take(self, chan: str) -> Message:
        """The first message that waits in a channel."""
        channel = self.waiting[chan]
        self._queued -= 1
        message = channel.queue.popleft()
        if not channel.queue:
            del self.waiting[chan]
        return message

    def take_oldest(self) -> Message:
        """The first message that waits in any channel; there must be one."""
        return self.take(min(self.waiting, key=lambda chan: self.waiting[chan].queue[0].received_ns))

    def stats(self, now: float) -> dict[str, Any]:
        """The part of `Endpoint.stats` that is about channels."""
        channels = self._channels
        found: dict[str, Any] = {
            "QSC": len(channels),
            "SEEN_QS": list(channels),
            "ACTIVE_QS": list(self.waiting),
            "QMC": {chan: len(one.queue) for chan, one in channels.items()},
            "TQMC": {**{chan: one.total for chan, one in channels.items()}, "*": self._all.total},
            "DROPPED": self._dropped,
        }
        if self._speed_window:
            found["SS"] = {**{chan: one.speed(now) for chan, one in channels.items()}, "*": self._all.speed(now)}
        return found

    def _forget_channel(self) -> None:
        name, channel = self._channels.popitem(last=False)
        if self.waiting.pop(name, None) is not None:
            self._queued -= len(channel.queue)
            self._dropped += len(channel.queue)


class EndpointStatistics:
    """What `Endpoint.stats` returns: the verdicts of all datagrams, and the figures of queues and dedup."""

    def __init__(self, queues: ChannelQueues, remembered: RememberedMessages | None) -> None:
        self._queues = queues
        self._remembered = remembered
        self._verdicts = [0] * len(NAMES)

    def count(self, verdict: int) -> None:
        self._verdicts[verdict] += 1

    def figures(self, now: float) -> dict[str, Any]:
        found = self._queues.stats(now)
        found["VERDICTS"] = {name: count for name, count in zip(NAMES, self._verdicts, strict=True) if count}
        return found if self._remembered is None else {**found, **self._remembered.stats()}


class _Run(NamedTuple):
    """One run of a source: its number, the highest seq, and when the last message was accepted (monotonic)."""

    number: int
    last: int
    heard: float


class RememberedMessages:
    """Messages by what identifies them, with their Unix times, the oldest first.

    A source has restarted, and what was remembered of it no longer counts, by the same rules as in the daemon (see
    `bccnd.core.tracking.dedup`): at a seq that is not above the highest one by then, if that comes later than
    ``horizon`` seconds after the last message, or is lower by ``sanity`` or more.
    """

    def __init__(self, sanity: int, horizon: float) -> None:
        self._sanity = sanity
        self._horizon = horizon
        self._times: OrderedDict[bytes, float] = OrderedDict()
        self._runs: OrderedDict[bytes, _Run] = OrderedDict()
        self._numbers = count()

    def is_repeated(self, source: bytes, seq: int, rest: bytes, now: float, clock: float) -> bool:
        """Whether a message that comes ``now`` was added before in this run of its source; now it is.

        ``rest`` tells apart messages with the same seq.
        """
        run = self._runs.get(source)
        if run is None or self._has_restarted(run, seq, now):
            run = _Run(next(self._numbers), seq, now)
        digest = blake2b(b"%d:%b:%d:%b" % (run.number, source, seq, rest), digest_size=16).digest()
        if digest in self._times:
            return True
        if len(self._times) >= MAX_REMEMBERED:
            self._times.popitem(last=False)
        self._times[digest] = clock
        self._runs[source] = _Run(run.number, max(run.last, seq), now)
        self._runs.move_to_end(source)
        if len(self._runs) > MAX_REMEMBERED:
            self._runs.popitem(last=False)
        return False

    def _has_restarted(self, run: _Run, seq: int, now: float) -> bool:
        return seq <= run.last and (now - run.heard > self._horizon or run.last - seq >= self._sanity)

    def forget(self, before: float) -> None:
        while self._times and next(iter(self._times.values())) <= before:
            self._times.popitem(last=False)

    def stats(self) -> dict[str, Any]:
        """The part of `Endpoint.stats` that is about what is remembered."""
        return {"DDC": len(self._times), "DDO": next(iter(self._times.values()), None)}
