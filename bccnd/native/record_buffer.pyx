"""Compiled twin of record_buffer.py."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

LONGEST = 239
LARGEST = 65535
cdef enum:
    MOST = 239
    LIMIT = 65535
    HEAD = 21
    # enough for a batch of datagrams with the longest src; it grows
    ROOM = 1 << 14


cdef class RecordBuffer:
    """Entries since the last `take`."""

    def __init__(self):
        self._buffer = bytearray()
        self._grow(ROOM)
        self.used = 0

    cdef int _grow(self, Py_ssize_t needed) except -1:
        PyByteArray_Resize(self._buffer, needed)
        self._text, self._size = PyByteArray_AS_STRING(self._buffer), needed
        return 0

    cpdef bint add(self, bytes raw, Py_ssize_t start, Py_ssize_t end) except -1:
        cdef Py_ssize_t size
        cdef char *at
        if not 0 <= start < end <= PyBytes_GET_SIZE(raw) or end - start > MOST:
            return False
        size = end - start
        if HEAD + self.used + 1 + size > self._size:
            self._grow(2 * (HEAD + self.used + 1 + size))
        at = self._text + HEAD + self.used
        at[0] = <char> size
        memcpy(at + 1, PyBytes_AS_STRING(raw) + start, <size_t> size)
        self.used += 1 + size
        return True

    cpdef put(self, int kind, bytes body):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
        cdef uint16_t length = <uint16_t> size
        cdef char *at
        if not MOST < kind <= 255 or size > LIMIT:
            raise ValueError("invalid kind or size of an entry")
        if HEAD + self.used + 3 + size > self._size:
            self._grow(2 * (HEAD + self.used + 3 + size))
        at = self._text + HEAD + self.used
        at[0] = <char> kind
        memcpy(at + 1, &length, 2)
        memcpy(at + 3, PyBytes_AS_STRING(body), <size_t> size)
        self.used += 3 + size

    cpdef bytes take(self, int kind, unsigned long long serial, double now):
        cdef char *at = self._text
        cdef uint32_t size = <uint32_t> (HEAD - 4 + self.used)
        cdef uint64_t number = serial
        cdef bytes taken
        memcpy(at, &size, 4)
        at[4] = <char> kind
        memcpy(at + 5, &number, 8)
        memcpy(at + 13, &now, 8)
        taken = PyBytes_FromStringAndSize(at, HEAD + self.used)
        self.used = 0
        return taken
