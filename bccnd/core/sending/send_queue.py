"""Send queue of one client: frames, and gaps in place of dropped messages.

A gap is a number of messages and takes no room, so that it can always be added. The client chooses the order (sbus,
"Flood control"):

- ``queue``: oldest first.
- ``stack``: newest first; a gap stays between its neighbours.
- ``random``: largest first, which frees the most memory; the gap comes last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Final

from bccnd.core.sending.message_groups import LENGTH, MAX_PORTION

QUEUE: Final = 0
STACK: Final = 1
RANDOM: Final = 2
ORDERS: Final = {b"queue": QUEUE, b"stack": STACK, b"random": RANDOM}

Entry = bytes | int

#: estimated bytes of an entry besides its frame
ENTRY: Final = 88


class SendQueue:
    """``bytes`` and ``messages`` count the queued frames; control frames are not messages."""

    __slots__ = ("_entries", "_frames", "_gap", "_heap", "_serial", "bytes", "messages", "order")

    def __init__(self) -> None:
        self.order = QUEUE
        self.bytes = 0
        self.messages = 0
        self._frames = 0
        self._entries: deque[Entry] = deque()
        #: for random order: (minus the size, serial, frame), and one gap at the end
        self._heap: list[tuple[int, int, bytes]] = []
        self._gap = 0
        self._serial = 0

    def __len__(self) -> int:
        return len(self._entries) + len(self._heap) + bool(self._gap)

    @property
    def memory(self) -> int:
        """Estimated bytes of memory in use."""
        return self.bytes + ENTRY * self._frames

    def put(self, frame: bytes) -> None:
        self.bytes += len(frame)
        self._frames += 1
        self.messages += frame.startswith(b"MSG")
        self._append(frame)

    def add_gap(self, count: int = 1) -> None:
        """Add a gap of ``count`` messages at the end."""
        last = self._entries[-1] if self._entries else b""
        if isinstance(last, int):
            self._entries[-1] = last + count
        else:
            self._append(count)

    def set_order(self, order: int) -> None:
        """Change the order, also of queued entries."""
        lost, self._gap = self._gap, 0
        entries = list(self)
        self._entries.clear()
        self._heap.clear()
        self.order = order
        for entry in entries:
            self._append(entry)
        if lost:
            self.add_gap(lost)

    def head(self) -> Entry:
        """Return the next entry. Raises IndexError if the queue is empty."""
        if self.order == RANDOM:
            return self._heap[0][2] if self._heap or not self._gap else self._gap
        return self._entries[-1 if self.order == STACK else 0]

    @property
    def has_message_next(self) -> bool:
        """Whether the next entry is a message, not a gap or control frame."""
        head = self.head()
        return not isinstance(head, int) and head.startswith(b"MSG")

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the entries in an order in which they can be put into an equal queue."""
        yield from self._entries
        yield from (frame for _, _, frame in sorted(self._heap, key=lambda one: one[1]))
        if self._gap:
            yield self._gap

    def next_batch(self) -> list[bytes]:
        """Return the next messages, as many as fit in one batch; none if the next entry is not a message. They stay in
        the queue."""
        if self.order == RANDOM:
            line: Iterable[Entry] = [self._heap[0][2]] if self._heap else []
        else:
            line = reversed(self._entries) if self.order == STACK else self._entries
        found: list[bytes] = []
        size = 0
        for entry in line:
            if isinstance(entry, int) or not entry.startswith(b"MSG"):
                break
            size += LENGTH + len(entry)
            if size > MAX_PORTION and found:
                break
            found.append(entry)
        return found

    def take(self) -> Entry:
        """Remove and return the next entry. Raises IndexError if the queue is empty."""
        entry: Entry
        if self.order != RANDOM:
            entry = self._entries.pop() if self.order == STACK else self._entries.popleft()
        elif self._gap and not self._heap:
            entry, self._gap = self._gap, 0
        else:
            entry = heappop(self._heap)[2]
        if not isinstance(entry, int):
            self.bytes -= len(entry)
            self._frames -= 1
            self.messages -= entry.startswith(b"MSG")
        return entry

    def add_gap_here(self) -> None:
        """Add a gap of one message before the next entry."""
        head = self._entries[0] if self.order == QUEUE and self._entries else b""
        if isinstance(head, int):
            self._entries[0] = head + 1
        elif self.order == QUEUE:
            self._entries.appendleft(1)
        else:
            self.add_gap()

    def clear(self) -> None:
        self._entries.clear()
        self._heap.clear()
        self._gap = self.bytes = self.messages = self._frames = 0

    def _append(self, entry: Entry) -> None:
        if self.order != RANDOM:
            self._entries.append(entry)
        elif isinstance(entry, int):
            self._gap += entry
        else:
            self._serial += 1
            heappush(self._heap, (-len(entry), self._serial, entry))
