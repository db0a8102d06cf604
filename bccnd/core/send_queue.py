"""What waits for one client: frames, and gaps that stand where frames were dropped.

Law: what is sent next depends only on what was put in and on the order that the client has chosen. A gap is a
number and takes no room, so that it can always be noted. Source: sbus, "Flood control".

- ``queue``: as it came.
- ``stack``: the latest first; a gap keeps its place among its neighbours.
- ``random``: what frees the most memory, that is the largest first; the gap, which has no place then, comes last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Final

from bccnd.core import client_records
from bccnd.core.fanout_groups import LENGTH, MAX_PORTION

QUEUE: Final = 0
STACK: Final = 1
RANDOM: Final = 2
ORDERS: Final = {b"queue": QUEUE, b"stack": STACK, b"random": RANDOM}

Entry = bytes | int

#: estimated bytes of memory that an entry takes beside its frame
ENTRY: Final = 88


class SendQueue:
    """Frames and gaps in the order of a client's choice. ``bytes`` and ``messages`` count the frames that wait;
    control frames are no messages."""

    __slots__ = ("_frames", "_heap", "_line", "_lost", "_serial", "bytes", "messages", "order")

    def __init__(self) -> None:
        self.order = QUEUE
        self.bytes = 0
        self.messages = 0
        self._frames = 0
        self._line: deque[Entry] = deque()
        #: in random order: (minus the size, serial, frame), and the one gap behind them
        self._heap: list[tuple[int, int, bytes]] = []
        self._lost = 0
        self._serial = 0

    def __len__(self) -> int:
        return len(self._line) + len(self._heap) + bool(self._lost)

    @property
    def memory(self) -> int:
        """Bytes of memory that all this takes, estimated."""
        return self.bytes + ENTRY * self._frames

    def put(self, frame: bytes) -> None:
        self.bytes += len(frame)
        self._frames += 1
        self.messages += frame.startswith(b"MSG")
        self._append(frame)

    def add_gap(self, count: int = 1) -> None:
        """Note that ``count`` messages are missing behind what was put in last."""
        last = self._line[-1] if self._line else b""
        if isinstance(last, int):
            self._line[-1] = last + count
        else:
            self._append(count)

    def set_order(self, order: int) -> None:
        """Change the order, also of what waits already."""
        lost, self._lost = self._lost, 0
        entries = list(self)
        self._line.clear()
        self._heap.clear()
        self.order = order
        for entry in entries:
            self._append(entry)
        if lost:
            self.add_gap(lost)

    def head(self) -> Entry:
        """What is to be sent next. Raises IndexError when nothing waits."""
        if self.order == RANDOM:
            return self._heap[0][2] if self._heap or not self._lost else self._lost
        return self._line[-1 if self.order == STACK else 0]

    @property
    def has_message_next(self) -> bool:
        """Whether what is to be sent next is a message: no gap, and no control frame."""
        head = self.head()
        return not isinstance(head, int) and head.startswith(b"MSG")

    def __iter__(self) -> Iterator[Entry]:
        """What waits, such that a box of the same order into which it is put again is as this one."""
        yield from self._line
        yield from (frame for _, _, frame in sorted(self._heap, key=lambda one: one[1]))
        if self._lost:
            yield self._lost

    def next_batch(self) -> list[bytes]:
        """The messages that are to be sent next, as many as go into one packet of a batch; none where something else
        comes first. They are not taken yet."""
        if self.order == RANDOM:
            line: Iterable[Entry] = [self._heap[0][2]] if self._heap else []
        else:
            line = reversed(self._line) if self.order == STACK else self._line
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
        """Take off what is to be sent next. Raises IndexError when nothing waits."""
        entry: Entry
        if self.order != RANDOM:
            entry = self._line.pop() if self.order == STACK else self._line.popleft()
        elif self._lost and not self._heap:
            entry, self._lost = self._lost, 0
        else:
            entry = heappop(self._heap)[2]
        if not isinstance(entry, int):
            self.bytes -= len(entry)
            self._frames -= 1
            self.messages -= entry.startswith(b"MSG")
        return entry

    def add_gap_here(self) -> None:
        """Note that a message is missing before what is to be sent next."""
        head = self._line[0] if self.order == QUEUE and self._line else b""
        if isinstance(head, int):
            self._line[0] = head + 1
        elif self.order == QUEUE:
            self._line.appendleft(1)
        else:
            self.add_gap()

    def apply_record(self, kind: int, number: int, frame: bytes) -> None:
        """Apply a record of client_records.py. Raises IndexError for one that cannot follow the previous ones."""
        if kind == client_records.PUT:
            self.put(frame)
        elif kind == client_records.LOST:
            self.add_gap(number)
        elif kind == client_records.LOST_HERE:
            self.take()
            self.add_gap_here()
        elif kind == client_records.TOOK:
            for _ in range(number):
                self.take()

    def clear(self) -> None:
        self._line.clear()
        self._heap.clear()
        self._lost = self.bytes = self.messages = self._frames = 0

    def _append(self, entry: Entry) -> None:
        if self.order != RANDOM:
            self._line.append(entry)
        elif isinstance(entry, int):
            self._lost += entry
        else:
            self._serial += 1
            heappush(self._heap, (-len(entry), self._serial, entry))
