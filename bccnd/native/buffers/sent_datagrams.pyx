"""Datagrams that were sent on a segment and have not come back, which are recognized by their bytes.

They come back in the order in which they were sent, except for those that were lost.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from libc.string cimport memcmp

# the most that are kept, and seconds for which each is
MOST = ROOM
PATIENCE = 2.0
cdef enum:
    # entries that are compared: up to so many may be lost in a row
    COMPARED = 8
    LAST = ROOM - 1


@cython.final
cdef class SentDatagrams:
    """A ring of them, one entry for each copy; the oldest is dropped for a new one."""

    def __init__(self):
        self._datagrams = [None] * MOST
        self._first = self._count = 0

    def __len__(self):
        return self._count

    cdef _drop(self, Py_ssize_t count):
        """Drop the oldest ones."""
        cdef Py_ssize_t number
        for number in range(count):
            self._datagrams[self._first] = None
            self._first = self._first + 1 & LAST
        self._count -= count

    cpdef put(self, bytes datagram, double now):
        """Add a datagram that was sent ``now`` (seconds, monotonic)."""
        cdef Py_ssize_t place
        if self._count == ROOM:
            self._drop(1)
        place = self._first + self._count & LAST
        self._datagrams[place], self._times[place] = datagram, now
        self._count += 1

    cpdef bint take(self, bytes raw, double now) except -1:
        """Whether ``raw`` is one of them that has come back; it is removed, with older ones, which were lost."""
        return self.take_text(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw), now)

    cdef bint take_text(self, const char *text, Py_ssize_t size, double now) except -1:
        cdef Py_ssize_t number
        cdef bytes found
        while self._count and now - self._times[self._first] > PATIENCE:
            self._drop(1)
        for number in range(min(self._count, <Py_ssize_t> COMPARED)):
            found = <bytes> PyList_GET_ITEM(self._datagrams, self._first + number & LAST)
            if PyBytes_GET_SIZE(found) == size and not memcmp(PyBytes_AS_STRING(found), text, size):
                self._drop(number + 1)
                return True
        return False
