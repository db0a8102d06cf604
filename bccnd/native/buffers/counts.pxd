cimport cython


@cython.final
cdef class Counts:
    cdef unsigned long long *_counts
    cdef Py_ssize_t _size

    cpdef int add(self, Py_ssize_t number, unsigned long long amount=*) except -1
    cpdef list values(self)
