cimport cython

cdef enum:
    ROOM = 1024


@cython.final
cdef class SentDatagrams:
    cdef list _datagrams
    cdef double[ROOM] _times
    cdef Py_ssize_t _first
    cdef Py_ssize_t _count

    cdef _drop(self, Py_ssize_t count)
    cpdef put(self, bytes datagram, double now)
    cpdef bint take(self, bytes raw, double now) except -1
    cdef bint take_text(self, const char *text, Py_ssize_t size, double now) except -1
