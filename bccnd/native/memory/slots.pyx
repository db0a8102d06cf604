"""Compiled twin of slots.py."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from bccnd.native.memory.source_view cimport CHUNK_SIZE, Chunk, absent_bits, missing_bits, view_of
from bccnd.native.memory.undo_memory cimport Header, in_order, save_bytes

from bccnd.native.memory import slot_layout as layout

cdef extern from "Python.h":
    ctypedef struct PyHash_FuncDef:
        Py_hash_t (*const hash)(const void *, Py_ssize_t) noexcept
    PyHash_FuncDef *PyHash_GetFuncDef()

cdef Py_ssize_t SLOTS = layout.SLOTS
cdef Py_ssize_t LABELS = layout.LABELS
cdef Py_ssize_t LABEL = layout.LABEL
cdef Py_ssize_t STEP = layout.STEP
cdef Py_ssize_t MAX_CELLS = layout.MAX_CELLS
cdef int SOURCE = layout.SOURCE
cdef int WINDOW = layout.WINDOW
cdef enum:
    MAX_KEY = 128
    # slots found lately, by the ends of their keys
    RECENT_BITS = 10

if sizeof(Cell) != layout.CELL:
    raise ImportError("the layout of slots is not the expected one")

cdef PyHash_FuncDef *_hashing = PyHash_GetFuncDef()


def _always(_start, _size):
    return True


@cython.final
cdef class SlotMemory(UndoMemory):
    """Slots of fixed size and counters in one piece of memory."""

    def __cinit__(self, memory, reserve=_always, Py_ssize_t expected=0):
        self._recent = <unsigned int *> calloc(1 << RECENT_BITS, sizeof(unsigned int))
        self._mask = 1023
        while self._mask < <size_t> (2 * max(expected, 0)):
            self._mask = 2 * self._mask + 1
        self._index = <unsigned int *> calloc(self._mask + 1, sizeof(unsigned int))
        if self._recent == NULL or self._index == NULL:
            raise MemoryError

    def __init__(self, memory, reserve=_always, Py_ssize_t expected=0):
        cdef Header *header
        UndoMemory.__init__(self, memory)
        self._cells = <Cell *> (self._base + <Py_ssize_t> layout.CELLS)
        self._slots = <Slot *> (self._base + SLOTS)
        self._room = (len(memory) - SLOTS) // sizeof(Slot)
        self._reserve = reserve
        self._free = []
        self._labels = {}
        self._free_cells = []
        self._wanted = set()
        header = self._header
        if memory[: len(layout.MAGIC)] != layout.MAGIC:
            header.slots = 1
            header.cells = 1
            self._slots.kind = layout.ENDS
            memory[: len(layout.MAGIC)] = layout.MAGIC
        header.slots = min(max(1, header.slots), <u64> self._room)
        header.cells = min(max(1, header.cells), <u64> MAX_CELLS)
        self._reserved = SLOTS + <Py_ssize_t> sizeof(Slot) * <Py_ssize_t> header.slots
        for cell in range(1, header.cells):
            at = LABELS + LABEL * cell
            label = memory[at : at + LABEL].rstrip(b"\0").decode(errors="replace")
            if label and label not in self._labels:
                self._labels[label] = cell
            else:
                self._free_cells.append(cell)

    def __dealloc__(self):
        free(self._recent)
        free(self._index)

    def restore(self, u64 serial):
        return self._load(self._undo(serial), self._header.change)

    def _load(self, bint torn, u64 change):
        cdef u64 number
        cdef Slot *slot
        cdef Py_ssize_t dropped = 0
        cdef bytearray used
        used = bytearray(self._header.slots)
        for number in range(1, self._header.slots):
            slot = self._slots + number
            if slot.kind == WINDOW or not slot.kind:
                continue
            self._taken = max(self._taken, slot.serial)
            if (torn and slot.saved >> 1 == change) or not 0 < slot.key_size <= MAX_KEY:
                slot.kind = 0
                dropped += 1
            elif slot.kind == SOURCE:
                if self._mark_chain(slot, used) and self._look(slot.key, slot.key_size) < 0:
                    self.index(number)
                else:
                    slot.kind = 0
                    dropped += 1
        for number in range(self._header.slots - 1, 0, -1):
            slot = self._slots + number
            if slot.kind == WINDOW and not used[number]:
                slot.kind = 0
            if not slot.kind:
                self._free.append(number)
        return dropped

    cdef bint _mark_chain(self, Slot *slot, bytearray used) except -1:
        """Mark the slots of a source's window as used; whether they make sense."""
        cdef Py_ssize_t size = slot.absent_size + slot.missing_size
        cdef u64 link = slot.window
        cdef Chunk *chunk
        while link:
            chunk = <Chunk *> (self._slots + link)
            if link >= self._header.slots or chunk.kind != WINDOW or size <= 0 or used[link]:
                return False
            used[link] = 1
            size -= CHUNK_SIZE
            link = chunk.link
        return size <= 0

    # -- counters

    def counter(self, str label):
        cell = self._labels.get(label)
        if cell is None:
            text = label.encode()
            used = self._header.cells
            if len(text) > LABEL or not (self._free_cells or used < <u64> MAX_CELLS):
                return 0
            cell = self._free_cells.pop() if self._free_cells else used
            self._header.cells = max(used, cell + 1)
            self._cells[<Py_ssize_t> cell].value = 0
            in_order()
            self._label(cell, text)
            self._labels[label] = cell
        self._wanted.add(cell)
        return cell

    cdef _label(self, cell, bytes text):
        at = LABELS + LABEL * cell
        self.memory[at : at + LABEL] = text.ljust(LABEL, b"\0")

    def labels(self, str group):
        return [label for label in self._labels if label.startswith(group)]

    def free_counters(self):
        for label, cell in list(self._labels.items()):
            if cell not in self._wanted:
                del self._labels[label]
                self._label(cell, b"")
                self._free_cells.append(cell)

    def clear_counters(self):
        cdef u64 cell
        for cell in range(self._header.cells):
            self._cells[cell].value = 0

    cpdef int add(self, Py_ssize_t cell, u64 amount=1) except -1:
        cdef Cell *found
        if not 0 <= cell < MAX_CELLS:
            raise IndexError(cell)
        found = self._cells + cell
        if self._open and found.saved != self._header.change:
            save_bytes(self, found, sizeof(Cell))
            found.saved = self._header.change
            in_order()
        found.value += amount
        return 0

    cpdef u64 value(self, Py_ssize_t cell) except? 0xFFFFFFFF:
        if not 0 <= cell < MAX_CELLS:
            raise IndexError(cell)
        return self._cells[cell].value

    # -- slots

    cdef Py_ssize_t _take(self) except -2:
        cdef Py_ssize_t number, end
        if self._free:
            return self._free.pop()
        number = <Py_ssize_t> self._header.slots
        end = SLOTS + <Py_ssize_t> sizeof(Slot) * (number + 1)
        if number >= self._room or (end > self._reserved and not self._reserve(self._reserved, STEP)):
            self.refused += 1
            return -1
        while end > self._reserved:
            self._reserved += STEP
        self._header.slots += 1
        return number

    cpdef Py_ssize_t take(self, int kind, bytes key) except -2:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(key)
        cdef Py_ssize_t number
        cdef Slot *slot
        cdef u64 saved
        if not 0 < size <= MAX_KEY:
            raise ValueError("a key must be 1 to 128 bytes long")
        number = self._take()
        if number >= 0:
            slot = self._slots + number
            self._taken += 1
            self.save(slot)
            saved = slot.saved
            memset(slot, 0, sizeof(Slot))
            slot.saved = saved
            slot.key_size = <unsigned char> size
            slot.serial = self._taken
            memcpy(slot.key, PyBytes_AS_STRING(key), <size_t> size)
            in_order()
            slot.kind = <unsigned char> kind
        return number

    cpdef free(self, Py_ssize_t number):
        cdef Slot *slot
        if not 0 < number < <Py_ssize_t> self._header.slots:
            raise IndexError(number)
        slot = self._slots + number
        if slot.window:
            self._set_window(slot, 0, 0)
        self.save(slot)
        slot.kind = 0
        self._free.append(number)

    cdef Slot *at(self, Py_ssize_t number) noexcept:
        return self._slots + number

    cpdef Source source(self, Py_ssize_t number):
        if not 0 <= number < <Py_ssize_t> self._header.slots:
            raise IndexError(number)
        return view_of(self, self._slots, number)

    def numbers(self, int kind):
        cdef Py_ssize_t number
        return [number for number in range(1, <Py_ssize_t> self._header.slots) if self._slots[number].kind == kind]

    def key(self, Py_ssize_t number):
        return self.source(number).src

    def body(self, Py_ssize_t number):
        return PyBytes_FromStringAndSize(<char *> self.source(number).at + 192, 64)

    def set_body(self, Py_ssize_t number, bytes body):
        cdef Source source = self.source(number)
        self.save(source.at)
        memcpy(<char *> source.at + 192, PyBytes_AS_STRING(body), <size_t> min(64, PyBytes_GET_SIZE(body)))

    # -- windows

    cpdef object absent(self, Py_ssize_t number):
        cdef Slot *slot = self._slots + number
        return absent_bits(self._slots, slot)

    cpdef object missing(self, Py_ssize_t number):
        cdef Slot *slot = self._slots + number
        return missing_bits(self._slots, slot)

    cpdef bint set_window(self, Py_ssize_t number, object absent, object missing) except -1:
        return self._set_window(self._slots + number, absent, missing)

    cdef bint _set_window(self, Slot *slot, object absent, object missing) except -1:
        cdef Py_ssize_t first = (absent.bit_length() + 7) // 8
        cdef Py_ssize_t second = (missing.bit_length() + 7) // 8
        cdef Py_ssize_t at = 0, part, number
        cdef bytes data = b""
        cdef unsigned int link = slot.window, following, start = 0
        cdef Slot *chunk
        cdef Chunk *last = NULL
        cdef bint enough = True
        if first:
            data = absent.to_bytes(first, "little") + missing.to_bytes(second, "little")
        while link or at < first + second:
            if at < first + second and not link:
                number = self._take()
                if number < 0:
                    enough = False
                    break
                chunk, following = self._slots + number, 0
                link = <unsigned int> number
                self.save(chunk)
                chunk.kind = <unsigned char> WINDOW
            else:
                chunk = self._slots + link
                following = chunk.epoch
                self.save(chunk)
            if at < first + second:
                part = min(CHUNK_SIZE, first + second - at)
                memcpy((<Chunk *> chunk).data, PyBytes_AS_STRING(data) + at, <size_t> part)
                (<Chunk *> chunk).link = 0
                if last == NULL:
                    start = link
                else:
                    last.link = link
                last = <Chunk *> chunk
                at += part
            else:
                chunk.kind = 0
                self._free.append(link)
            link = following
        self.save_head(slot)
        slot.absent_size, slot.missing_size = <unsigned short> first, <unsigned short> second
        slot.window = start
        if not enough:
            # what was taken for it is given back, since nothing is to remain of it
            self._set_window(slot, 0, 0)
        return enough

    # -- sources by src

    cdef Py_ssize_t _look(self, const char *text, Py_ssize_t size) noexcept:
        cdef size_t at = <size_t> _hashing.hash(text, size) & self._mask
        cdef Slot *slot
        while self._index[at]:
            slot = self._slots + self._index[at]
            if slot.key_size == size and not memcmp(slot.key, text, <size_t> size):
                return <Py_ssize_t> self._index[at]
            at = (at + 1) & self._mask
        return -1

    cpdef Py_ssize_t find(self, bytes raw, Py_ssize_t start, Py_ssize_t end) except -2:
        cdef Py_ssize_t size = end - start
        cdef Py_ssize_t taken = size if size < 8 else 8
        cdef const char *text = PyBytes_AS_STRING(raw) + start
        cdef uint64_t word = 0
        cdef unsigned int *recent
        cdef Slot *slot
        cdef Py_ssize_t number
        if not 0 <= start <= end <= PyBytes_GET_SIZE(raw):
            raise IndexError("outside the bytes")
        # The ends of similar names differ. Keys that collide only make this useless.
        memcpy(&word, text + size - taken, <size_t> taken)
        recent = self._recent + ((word + <uint64_t> size) * <uint64_t> 0x9E3779B97F4A7C15 >> 64 - RECENT_BITS)
        slot = self._slots + recent[0]
        if slot.kind == SOURCE and slot.key_size == size and not memcmp(slot.key, text, <size_t> size):
            return <Py_ssize_t> recent[0]
        number = self._look(text, size)
        if number > 0:
            recent[0] = <unsigned int> number
        return number

    cpdef index(self, Py_ssize_t number):
        cdef size_t at
        cdef Slot *slot = self._slots + number
        if 2 * self._indexed > self._mask:
            self._grow()
        at = <size_t> _hashing.hash(slot.key, slot.key_size) & self._mask
        while self._index[at]:
            at = (at + 1) & self._mask
        self._index[at] = <unsigned int> number
        self._indexed += 1

    cdef _grow(self):
        """Double the index."""
        cdef unsigned int *old = self._index
        cdef size_t size = self._mask + 1
        cdef size_t at
        cdef unsigned int *new = <unsigned int *> calloc(2 * size, sizeof(unsigned int))
        if new == NULL:
            raise MemoryError
        self._index, self._mask, self._indexed = new, 2 * size - 1, 0
        for at in range(size):
            if old[at]:
                self.index(old[at])
        free(old)

    cpdef unindex(self, Py_ssize_t number):
        cdef size_t at, following, home
        cdef Slot *slot = self._slots + number
        at = <size_t> _hashing.hash(slot.key, slot.key_size) & self._mask
        while self._index[at] and self._index[at] != <unsigned int> number:
            at = (at + 1) & self._mask
        if not self._index[at]:
            return
        self._indexed -= 1
        # What would not be found behind the hole moves into it.
        following = at
        while True:
            self._index[at] = 0
            while True:
                following = (following + 1) & self._mask
                if not self._index[following]:
                    return
                slot = self._slots + self._index[following]
                home = <size_t> _hashing.hash(slot.key, slot.key_size) & self._mask
                if (following - home) & self._mask >= (following - at) & self._mask:
                    break
            self._index[at] = self._index[following]
            at = following
