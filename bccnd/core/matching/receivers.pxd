cimport cython


@cython.final
cdef class Group:
    cdef public Py_ssize_t count
    cdef public tuple receivers
    cdef public list messages


@cython.final
cdef class Part:
    cdef object __weakref__
    cdef readonly tuple all
    cdef public tuple groups
    cdef public long version


@cython.final
cdef class Receivers:
    cdef object __weakref__
    cdef readonly tuple all
    cdef readonly Part single
    cdef readonly Part batched
    cdef readonly long version
    cdef public long generation

    cpdef divide(self, object batched, long version)
