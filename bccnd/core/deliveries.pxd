cimport cython


@cython.final
cdef class Deliveries:
    cdef readonly Py_ssize_t count
    cdef readonly tuple receivers
    cdef readonly bytes frame
    cdef list _rest

    cpdef clear(self)
    cpdef put(self, tuple receivers, bytes frame)
    cpdef list take(self)
