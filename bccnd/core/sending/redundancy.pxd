cimport cython


@cython.final
cdef class Repeater:
    cdef list _waiting
    cdef object _number
    cdef readonly object dropped
    cdef object _horizon
    cdef readonly tuple rules
    cdef object _tree
