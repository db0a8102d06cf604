"""Memory in which a change can be taken back that its writer could not finish; see slot_layout.py.

Invariant: between `begin` and `commit`, what is overwritten is saved first. Without `recording` nothing is saved.
"""

from __future__ import annotations

import struct
from mmap import mmap
from typing import Final, Protocol

from bccnd.native.memory import slot_layout as layout

#: two numbers of 8 bytes
PAIR: Final = struct.Struct("=QQ")


class Slot(Protocol):
    """A slot that begins at ``start``; compiled callers have a pointer."""

    start: int


class UndoMemory:
    """``memory`` may outlive the process."""

    def __init__(self, memory: mmap) -> None:
        self.memory = memory
        self.recording = False
        self._open = False

    def _read(self, at: int) -> int:
        number: int = struct.unpack_from("=Q", self.memory, at)[0]
        return number

    def _write(self, at: int, number: int) -> None:
        struct.pack_into("=Q", self.memory, at, number)

    def record(self) -> None:
        """From now on, save what changes."""
        self.recording = True

    def begin(self, serial: int) -> None:
        """Begin a change that belongs to an input; 0: to none."""
        if not self.recording:
            return
        self._write(layout.AT_UNDO, 0)
        self._write(layout.AT_OVERFLOW, 0)
        self._write(layout.AT_CHANGE, self._read(layout.AT_CHANGE) + 1)
        self._write(layout.AT_SERIAL, serial)
        self._open = True

    def start(self) -> bool:
        """Begin a change that belongs to no input, unless one is in progress; whether it is to be committed."""
        if self._open or not self.recording:
            return False
        self.begin(0)
        return True

    def commit(self) -> None:
        """End a change: nothing of it is taken back any more."""
        if self._open:
            self._write(layout.AT_UNDO, 0)
            self._write(layout.AT_OVERFLOW, 0)
            self._open = False

    def _save(self, at: int, size: int) -> None:
        used = self._read(layout.AT_UNDO)
        if used + PAIR.size + size > layout.UNDO_SIZE:
            self._write(layout.AT_OVERFLOW, 1)
            return
        start = layout.UNDO + used
        self.memory[start : start + PAIR.size + size] = PAIR.pack(at, size) + self.memory[at : at + size]
        self._write(layout.AT_UNDO, used + PAIR.size + size)

    def save_head(self, slot: Slot) -> None:
        """Save the head of a slot, unless this change has."""
        change = self._read(layout.AT_CHANGE)
        if self._open and self._read(slot.start + 8) >> 1 != change:
            self._save(slot.start, layout.HEAD)
            self._write(slot.start + 8, change << 1)

    def save(self, slot: Slot) -> None:
        """Save a slot, unless this change has."""
        if self._open:
            self._save_slot(slot.start)

    def _save_slot(self, start: int) -> None:
        change, saved = self._read(layout.AT_CHANGE), self._read(start + 8)
        if saved >> 1 != change:
            self._save(start, layout.SLOT)
        elif not saved & 1:
            self._save(start + layout.HEAD, layout.SLOT - layout.HEAD)
        self._write(start + 8, change << 1 | 1)

    def _undo(self, serial: int) -> bool:
        """Take back the last change if it belongs to no input or to the unfinished one; whether not all of it was
        saved."""
        of, used = self._read(layout.AT_SERIAL), self._read(layout.AT_UNDO)
        torn = bool(self._read(layout.AT_OVERFLOW)) and of in (0, serial)
        if of in (0, serial):
            at, end = layout.UNDO, layout.UNDO + min(used, layout.UNDO_SIZE)
            while at + PAIR.size <= end:
                start, size = PAIR.unpack_from(self.memory, at)
                at += PAIR.size
                if size > end - at or start + size > len(self.memory):
                    break
                self.memory[start : start + size] = self.memory[at : at + size]
                at += size
        self._write(layout.AT_UNDO, 0)
        self._write(layout.AT_OVERFLOW, 0)
        return torn
