cimport cython


@cython.final
cdef class RecordBuffer:
    cdef bytearray _buffer
    # address and size of the buffer
    cdef char *_text
    cdef Py_ssize_t _size
    cdef readonly Py_ssize_t used

    cdef int _grow(self, Py_ssize_t needed) except -1
    cpdef bint add(self, bytes raw, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef put(self, int kind, bytes body)
    cpdef bytes take(self, int kind, unsigned long long serial, double now)
