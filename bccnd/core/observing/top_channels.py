"""The busiest channels of the last minute.

Memory is bounded for any number of channels: the quietest are evicted. Counts are lower bounds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

#: channels remembered
REMEMBERED: Final = 256
#: seconds over which they are counted
WINDOW: Final = 60.0


class Channel(NamedTuple):
    """Messages on a channel within the window; ``receivers`` is the number of local clients that get it."""

    chan: bytes
    messages: int
    receivers: int


class _Carried:
    __slots__ = ("messages", "receivers", "updates")

    def __init__(self) -> None:
        #: time and number of messages of each update
        self.updates: deque[tuple[float, int]] = deque()
        self.messages = 0
        self.receivers = 0

    def add(self, now: float, messages: int, receivers: int) -> None:
        self.updates.append((now, messages))
        self.messages += messages
        self.receivers = receivers

    def age(self, now: float) -> None:
        while self.updates and now - self.updates[0][0] >= WINDOW:
            self.messages -= self.updates.popleft()[1]


class TopChannels:
    """The busiest channels of the last minute."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._cap = remembered
        self._channels: dict[bytes, _Carried] = {}

    def add(self, now: float, carried: Iterable[tuple[bytes, int, int]]) -> None:
        """Add messages since the last call: channel, messages, receivers."""
        for chan, messages, receivers in heapq.nlargest(self._cap, carried, key=itemgetter(1)):
            self._channels.setdefault(chan, _Carried()).add(now, messages, receivers)
        for channel in self._channels.values():
            channel.age(now)
        kept = heapq.nlargest(self._cap, self._channels.items(), key=_messages)
        self._channels = {chan: channel for chan, channel in kept if channel.messages}

    def busiest(self, count: int) -> list[Channel]:
        """Return the channels with most messages within the window, the busiest first."""
        best = heapq.nlargest(count, self._channels.items(), key=_messages)
        return [Channel(chan, one.messages, one.receivers) for chan, one in best]

    def __len__(self) -> int:
        return len(self._channels)


def _messages(item: tuple[bytes, _Carried]) -> int:
    return item[1].messages
