"""Compiled twin of source_view.py."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

from bccnd.native.memory import slot_layout as layout

if sizeof(Chunk) != layout.SLOT or layout.CHUNK_SIZE != CHUNK_SIZE:
    raise ImportError("the layout of slots is not the expected one")


cdef object _bits(Slot *slots, Slot *slot, Py_ssize_t start, Py_ssize_t size):
    """Return a number of so many bytes of a window."""
    cdef bytes data
    cdef char *to
    cdef Chunk *chunk = <Chunk *> (slots + slot.window)
    cdef Py_ssize_t part
    if not size:
        return 0
    data = PyBytes_FromStringAndSize(NULL, size)
    to = PyBytes_AS_STRING(data)
    while start >= CHUNK_SIZE:
        start -= CHUNK_SIZE
        chunk = <Chunk *> (slots + chunk.link)
    while size:
        part = min(size, CHUNK_SIZE - start)
        memcpy(to, chunk.data + start, <size_t> part)
        to, size, start = to + part, size - part, 0
        if size:
            chunk = <Chunk *> (slots + chunk.link)
    return int.from_bytes(data, "little")


cdef object absent_bits(Slot *slots, Slot *slot):
    return _bits(slots, slot, 0, slot.absent_size)


cdef object missing_bits(Slot *slots, Slot *slot):
    return _bits(slots, slot, slot.absent_size, slot.missing_size)


cdef Source view_of(UndoMemory memory, Slot *slots, Py_ssize_t number):
    cdef Source found = Source.__new__(Source)
    found._memory = memory
    found.number = number
    found.at = slots + number
    found._kind = found.at.kind
    found._serial = found.at.serial
    return found


@cython.final
@cython.freelist(32)
cdef class Source:
    """View of a slot."""

    @property
    def valid(self):
        return self.at.kind == self._kind and self.at.serial == self._serial

    @property
    def src(self):
        return PyBytes_FromStringAndSize(self.at.key, self.at.key_size)

    @property
    def absent(self):
        return absent_bits(self.at - self.number, self.at)

    @property
    def missing(self):
        return missing_bits(self.at - self.number, self.at)

    @property
    def state(self):
        return self.at.state

    @state.setter
    def state(self, unsigned char value):
        self._memory.save_head(self.at)
        self.at.state = value

    @property
    def epoch(self):
        return self.at.epoch

    @epoch.setter
    def epoch(self, unsigned int value):
        self._memory.save_head(self.at)
        self.at.epoch = value

    @property
    def last(self):
        return self.at.last

    @last.setter
    def last(self, u64 value):
        self._memory.save_head(self.at)
        self.at.last = value

    @property
    def heard(self):
        return self.at.heard

    @heard.setter
    def heard(self, double value):
        self._memory.save_head(self.at)
        self.at.heard = value

    @property
    def rank(self):
        return self.at.rank

    @rank.setter
    def rank(self, double value):
        self._memory.save_head(self.at)
        self.at.rank = value

    @property
    def older(self):
        return self.at.older

    @older.setter
    def older(self, unsigned int value):
        self._memory.save_head(self.at)
        self.at.older = value

    @property
    def newer(self):
        return self.at.newer

    @newer.setter
    def newer(self, unsigned int value):
        self._memory.save_head(self.at)
        self.at.newer = value

    @property
    def first(self):
        return self.at.first

    @first.setter
    def first(self, u64 value):
        self._memory.save(self.at)
        self.at.first = value

    @property
    def beat(self):
        return self.at.beat

    @beat.setter
    def beat(self, double value):
        self._memory.save(self.at)
        self.at.beat = value

    @property
    def gap(self):
        return self.at.gap

    @gap.setter
    def gap(self, float value):
        self._memory.save(self.at)
        self.at.gap = value

    @property
    def interval(self):
        return self.at.interval

    @interval.setter
    def interval(self, float value):
        self._memory.save(self.at)
        self.at.interval = value

    @property
    def window(self):
        return self.at.window
