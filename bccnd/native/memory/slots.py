"""Slots of fixed size and counters in one piece of memory, which may outlive the process; see slot_layout.py.

The compiled twin gives compiled callers pointers to slots (slots.pyx).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from mmap import mmap

from bccnd.native.memory import slot_layout as layout
from bccnd.native.memory.source_view import Source
from bccnd.native.memory.undo_memory import PAIR, UndoMemory


def _always(_start: int, _size: int) -> bool:
    """Reserve nothing: memory of this process only needs no reserve."""
    return True


class SlotMemory(UndoMemory):
    """``reserve`` gets the start and size of what is about to be used, and returns whether the system has it;
    ``expected`` is the approximate number of sources."""

    def __init__(self, memory: mmap, reserve: Callable[[int, int], bool] = _always, expected: int = 0) -> None:
        """Take over ``memory``: all zeros, or what another `SlotMemory` has left. `restore` must follow then."""
        del expected  # a dictionary grows
        super().__init__(memory)
        #: how often there was no memory for a slot
        self.refused = 0
        self._reserve = reserve
        self._room = (len(memory) - layout.SLOTS) // layout.SLOT
        self._free: list[int] = []
        self._taken = 0
        self._labels: dict[str, int] = {}
        self._free_cells: list[int] = []
        self._wanted: set[int] = set()
        self._index: dict[bytes, int] = {}
        if memory[: len(layout.MAGIC)] != layout.MAGIC:
            self._write(layout.AT_SLOTS, 1)
            self._write(layout.AT_CELLS, 1)
            memory[layout.SLOTS] = layout.ENDS
            memory[: len(layout.MAGIC)] = layout.MAGIC
        self._write(layout.AT_SLOTS, min(max(1, self._read(layout.AT_SLOTS)), self._room))
        self._write(layout.AT_CELLS, min(max(1, self._read(layout.AT_CELLS)), layout.MAX_CELLS))
        self._reserved = layout.SLOTS + layout.SLOT * self._read(layout.AT_SLOTS)
        for cell in range(1, self._read(layout.AT_CELLS)):
            at = layout.LABELS + layout.LABEL * cell
            label = memory[at : at + layout.LABEL].rstrip(b"\0").decode(errors="replace")
            if label and label not in self._labels:
                self._labels[label] = cell
            else:
                self._free_cells.append(cell)

    def restore(self, serial: int) -> int:
        """Take back the last change if it belongs to no input or to the unfinished one; return the number of slots that
        had to be dropped, since they could not be taken back or make no sense."""
        torn = self._undo(serial)
        return self._load(self._read(layout.AT_CHANGE) if torn else -1)

    def _load(self, torn: int) -> int:
        """Find out what the slots hold; those that were saved in the change ``torn`` hold nothing reliable."""
        dropped = 0
        for number in range(1, self._read(layout.AT_SLOTS)):
            start = layout.SLOTS + layout.SLOT * number
            kind, size = self.memory[start], self.memory[start + 2]
            if kind in (layout.WINDOW, layout.FREE):
                continue
            self._taken = max(self._taken, self._read(start + 56))
            if self._read(start + 8) >> 1 == torn or not 0 < size <= layout.MAX_KEY:
                dropped += 1
                self.memory[start] = kind = layout.FREE
            if kind == layout.SOURCE and self.find(self.key(number), 0, size) < 0:
                self.index(number)
        used: set[int] = set()
        for number in self.numbers(layout.SOURCE):
            chain = self._chain(number)
            if chain is None or used.intersection(chain):
                dropped += 1
                self.unindex(number)
                self.memory[layout.SLOTS + layout.SLOT * number] = layout.FREE
            else:
                used.update(chain)
        for number in range(self._read(layout.AT_SLOTS) - 1, 0, -1):
            start = layout.SLOTS + layout.SLOT * number
            if self.memory[start] == layout.WINDOW and number not in used:
                self.memory[start] = layout.FREE
            if self.memory[start] == layout.FREE:
                self._free.append(number)
        return dropped

    def _chain(self, number: int) -> list[int] | None:
        """Return the slots of a source's window; None if they make no sense."""
        source = self.at(number)
        found: list[int] = []
        link, size = source.window, source.absent_size + source.missing_size
        while link:
            start = layout.SLOTS + layout.SLOT * link
            if link >= self._read(layout.AT_SLOTS) or self.memory[start] != layout.WINDOW or size <= 0:
                return None
            found.append(link)
            size -= layout.CHUNK_SIZE
            (link,) = struct.unpack_from("=I", self.memory, start + 4)
        return found if size <= 0 else None

    # -- counters

    def counter(self, label: str) -> int:
        """Return the number of the counter with this name, which goes on from where it was; 0, which stands for all
        others, if there is no room for it."""
        cell = self._labels.get(label)
        if cell is None:
            text = label.encode()
            used = self._read(layout.AT_CELLS)
            if len(text) > layout.LABEL or not (self._free_cells or used < layout.MAX_CELLS):
                return 0
            cell = self._free_cells.pop() if self._free_cells else used
            self._write(layout.AT_CELLS, max(used, cell + 1))
            self._write(layout.CELLS + layout.CELL * cell, 0)
            self._label(cell, text)
            self._labels[label] = cell
        self._wanted.add(cell)
        return cell

    def _label(self, cell: int, text: bytes) -> None:
        at = layout.LABELS + layout.LABEL * cell
        self.memory[at : at + layout.LABEL] = text.ljust(layout.LABEL, b"\0")

    def labels(self, group: str) -> list[str]:
        """Return the names of counters that begin with ``group``."""
        return [label for label in self._labels if label.startswith(group)]

    def free_counters(self) -> None:
        """Forget the counters that a daemon before had, and that were not asked for since."""
        for label, cell in list(self._labels.items()):
            if cell not in self._wanted:
                del self._labels[label]
                self._label(cell, b"")
                self._free_cells.append(cell)

    def clear_counters(self) -> None:
        """Let all counters begin at 0."""
        for cell in range(self._read(layout.AT_CELLS)):
            self._write(layout.CELLS + layout.CELL * cell, 0)

    def add(self, cell: int, amount: int = 1) -> None:
        """Raises IndexError for a counter that there is not."""
        if not 0 <= cell < layout.MAX_CELLS:
            raise IndexError(cell)
        at = layout.CELLS + layout.CELL * cell
        value, saved = PAIR.unpack_from(self.memory, at)
        change = self._read(layout.AT_CHANGE)
        if self._open and saved != change:
            self._save(at, layout.CELL)
            self._write(at + 8, change)
        self._write(at, value + amount)

    def value(self, cell: int) -> int:
        """Raises IndexError for a counter that there is not."""
        if not 0 <= cell < layout.MAX_CELLS:
            raise IndexError(cell)
        return self._read(layout.CELLS + layout.CELL * cell)

    # -- slots

    def _take(self) -> int:
        """Return a slot that is free; -1 if there is none."""
        if self._free:
            return self._free.pop()
        number = self._read(layout.AT_SLOTS)
        end = layout.SLOTS + layout.SLOT * (number + 1)
        if number >= self._room or (end > self._reserved and not self._reserve(self._reserved, layout.STEP)):
            self.refused += 1
            return -1
        while end > self._reserved:
            self._reserved += layout.STEP
        self._write(layout.AT_SLOTS, number + 1)
        return number

    def take(self, kind: int, key: bytes) -> int:
        """Use a slot for a record with a key of 1 to 128 bytes; return its number, -1 if there is no memory for it."""
        if not 0 < len(key) <= layout.MAX_KEY:
            raise ValueError("a key must be 1 to 128 bytes long")
        number = self._take()
        if number >= 0:
            start = layout.SLOTS + layout.SLOT * number
            self._taken += 1
            if self._open:
                self._save_slot(start)
            saved = self._read(start + 8)
            head = bytes((layout.FREE, 0, len(key), 0, 0, 0, 0, 0)) + struct.pack("=Q", saved)
            self.memory[start : start + layout.SLOT] = (
                head.ljust(56, b"\0") + struct.pack("=Q", self._taken) + key.ljust(layout.SLOT - layout.KEY, b"\0")
            )
            self.memory[start] = kind
        return number

    def free(self, number: int) -> None:
        """Give a slot back, with its window."""
        source = self.at(number)
        self.set_window(number, 0, 0)
        self.save(source)
        self.memory[source.start] = layout.FREE
        self._free.append(number)

    def at(self, number: int) -> Source:
        """Return a slot; compiled callers get a pointer."""
        return Source(self, number)

    def source(self, number: int) -> Source:
        """Return a view of a slot. Raises IndexError for one that there is not."""
        if not 0 <= number < self._read(layout.AT_SLOTS):
            raise IndexError(number)
        return Source(self, number)

    def numbers(self, kind: int) -> list[int]:
        """Return the slots of a kind."""
        used = self._read(layout.AT_SLOTS)
        return [number for number in range(1, used) if self.memory[layout.SLOTS + layout.SLOT * number] == kind]

    def key(self, number: int) -> bytes:
        return self.source(number).src

    def body(self, number: int) -> bytes:
        """Return the 64 bytes of a record."""
        at = self.source(number).start + layout.BODY
        return self.memory[at : at + layout.SLOT - layout.BODY]

    def set_body(self, number: int, body: bytes) -> None:
        """Set up to 64 bytes of a record."""
        source = self.source(number)
        self.save(source)
        at = source.start + layout.BODY
        self.memory[at : at + len(body)] = body[: layout.SLOT - layout.BODY]

    # -- windows

    def absent(self, number: int) -> int:
        """Return the seqs of a source that were not seen: see `Source`."""
        return self.at(number).absent

    def missing(self, number: int) -> int:
        return self.at(number).missing

    def set_window(self, number: int, absent: int, missing: int) -> bool:
        """Set the seqs that were not seen; False if there is no memory for that: then all were."""
        source = self.at(number)
        sizes = [(bits.bit_length() + 7) // 8 for bits in (absent, missing)]
        data = absent.to_bytes(sizes[0], "little") + missing.to_bytes(sizes[1], "little")
        chain = self._chain(number) or []
        while len(chain) * layout.CHUNK_SIZE < len(data):
            added = self._take()
            if added < 0:
                data, sizes = b"", [0, 0]
                break
            start = layout.SLOTS + layout.SLOT * added
            if self._open:
                self._save_slot(start)
            self.memory[start] = layout.WINDOW
            chain.append(added)
        links = []
        for place, link in enumerate(chain):
            start = layout.SLOTS + layout.SLOT * link
            part = data[place * layout.CHUNK_SIZE : (place + 1) * layout.CHUNK_SIZE]
            if self._open:
                self._save_slot(start)
            if part:
                links.append(start)
                self.memory[start + layout.CHUNK : start + layout.CHUNK + len(part)] = part
            else:
                self.memory[start] = layout.FREE
                self._free.append(link)
        for place, start in enumerate(links):
            struct.pack_into("=I", self.memory, start + 4, chain[place + 1] if place + 1 < len(links) else 0)
        source.window = chain[0] if links else 0
        source.absent_size, source.missing_size = sizes
        return not (absent and not data)

    # -- sources by src

    def find(self, raw: bytes, start: int, end: int) -> int:
        """Return the slot of the source whose src is ``raw[start:end]``; -1 if there is none. Raises IndexError for a
        slice outside ``raw``."""
        if not 0 <= start <= end <= len(raw):
            raise IndexError("outside the bytes")
        return self._index.get(raw[start:end], -1)

    def index(self, number: int) -> None:
        """Let `find` find a slot."""
        self._index[self.key(number)] = number

    def unindex(self, number: int) -> None:
        self._index.pop(self.key(number), None)
