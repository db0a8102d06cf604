"""What waits for one subscriber that takes less than comes.

Law: what waits is bounded in bytes; a message is queued whole or not at all, and one of which a part has gone out is
finished. Times are seconds of a clock that only goes on, told by the caller.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

#: messages put into one piece for the socket: 64 KiB of the broker's
_AT_ONCE: Final = 40


class Queue:
    """Messages in the order in which they came. ``waiting`` are the bytes that the socket has not taken."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._messages: deque[bytes] = deque()
        #: bytes of the first message that are gone
        self._gone = 0
        self.waiting = 0
        #: since when nothing was taken while there was something to take; and whether there was no room meanwhile
        self._stands_since = 0.0
        self._overflown = False

    def offer(self, message: bytes, now: float) -> bool:
        """Queue a message; False where there is no room for it."""
        if self.waiting + len(message) > self._limit:
            self._overflown = True
            return False
        if not self.waiting:
            self._stands_since = now
        self._messages.append(message)
        self.waiting += len(message)
        return True

    def piece(self) -> bytes:
        """What to give to the socket next; empty when nothing waits."""
        whole = b"".join(islice(self._messages, _AT_ONCE))
        return whole[self._gone :] if self._gone else whole

    def __len__(self) -> int:
        """Messages that have not gone out, or not wholly."""
        return len(self._messages)

    def taken(self, count: int, now: float) -> int:
        """The socket has taken so many bytes of the last piece; how many messages have gone out wholly with that."""
        self.waiting -= count
        self._stands_since = now
        self._overflown = False
        count += self._gone
        messages = self._messages
        before = len(messages)
        while messages and count >= len(messages[0]):
            count -= len(messages.popleft())
        self._gone = count
        return before - len(messages)

    def stuck(self, now: float, patience: float) -> bool:
        """Whether nothing was taken for so long, and messages were lost over that."""
        return self._overflown and now - self._stands_since >= patience
