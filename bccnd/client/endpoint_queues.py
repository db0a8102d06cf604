"""What an endpoint has received: queues and totals by channel, and the messages that are recognized as repeated.

Invariant: nothing grows without a bound, whatever others send.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from hashlib import blake2b
from typing import Any, Final

from bccnd.client.message import Message

#: channels whose queues and totals are kept; the one silent for longest goes first
MAX_CHANNELS: Final = 4096
#: messages that wait in all channels together; newer ones are dropped
MAX_QUEUED: Final = 10_000
#: messages remembered to recognize repeated ones; the oldest goes first
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


class RememberedMessages:
    """Messages by what identifies them, with their Unix times, the oldest first."""

    def __init__(self) -> None:
        self._times: OrderedDict[bytes, float] = OrderedDict()

    def is_repeated(self, key: bytes, now: float) -> bool:
        """Whether ``key`` was added before; now it is."""
        digest = blake2b(key, digest_size=16).digest()
        if digest in self._times:
            return True
        if len(self._times) >= MAX_REMEMBERED:
            self._times.popitem(last=False)
        self._times[digest] = now
        return False

    def forget(self, before: float) -> None:
        while self._times and next(iter(self._times.values())) <= before:
            self._times.popitem(last=False)

    def stats(self) -> dict[str, Any]:
        """The part of `Endpoint.stats` that is about what is remembered."""
        return {"DDC": len(self._times), "DDO": next(iter(self._times.values()), None)}
