"""Compiled twin of undo_memory.py."""

from libc.string cimport memcpy

from bccnd.native.memory import slot_layout as layout

if sizeof(Slot) != layout.SLOT or (layout.HEAD, layout.UNDO, layout.UNDO_SIZE) != (HEAD, UNDO, UNDO_SIZE):
    raise ImportError("the layout of slots is not the expected one")


cdef class UndoMemory:
    """Memory in which what an unfinished change has overwritten can be put back."""

    def __init__(self, memory):
        self.memory = memory
        self._view = memoryview(memory)
        self._base = address_of(memory)
        self._header = <Header *> self._base

    def record(self):
        self.recording = True

    cpdef begin(self, u64 serial):
        cdef Header *header = self._header
        if not self.recording:
            return
        header.undo = 0
        header.overflow = 0
        in_order()
        header.change += 1
        header.serial = serial
        in_order()
        self._open = True

    cpdef bint start(self) except -1:
        if self._open or not self.recording:
            return False
        self.begin(0)
        return True

    cpdef commit(self):
        if self._open:
            in_order()
            self._header.undo = 0
            self._header.overflow = 0
            in_order()
            self._open = False

    cdef void save_head(self, Slot *slot) noexcept:
        cdef u64 change
        if self._open:
            change = self._header.change
            if slot.saved >> 1 != change:
                save_bytes(self, slot, HEAD)
                slot.saved = change << 1
                in_order()

    cdef void save(self, Slot *slot) noexcept:
        cdef u64 change
        if self._open:
            change = self._header.change
            if slot.saved >> 1 != change:
                save_bytes(self, slot, sizeof(Slot))
            elif not slot.saved & 1:
                save_bytes(self, <char *> slot + HEAD, sizeof(Slot) - HEAD)
            slot.saved = change << 1 | 1
            in_order()

    cdef bint _undo(self, u64 serial) except -1:
        cdef Header *header = self._header
        cdef u64 at = 0
        cdef u64 *entry
        cdef bint mine = header.serial == 0 or header.serial == serial
        cdef bint torn = header.overflow != 0 and mine
        if mine:
            while at + 16 <= header.undo and header.undo <= UNDO_SIZE:
                entry = <u64 *> (self._base + UNDO + at)
                if entry[1] > UNDO_SIZE - at - 16 or entry[0] > <u64> len(self.memory) - entry[1]:
                    break
                memcpy(self._base + entry[0], entry + 2, entry[1])
                at += 16 + entry[1]
        in_order()
        header.undo = 0
        header.overflow = 0
        return torn
