cdef class Notes:
    cdef bytearray _room
    cdef readonly Py_ssize_t used

    cdef int _make_room(self, Py_ssize_t size) except -1
    cpdef bint add(self, bytes raw, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef put(self, int kind, bytes what)
    cpdef bytes take(self, int kind, unsigned long long serial, double now)
