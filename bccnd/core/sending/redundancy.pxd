cimport cython


@cython.final
cdef class RepeatRules:
    cdef tuple _rules
    cdef object _tree


@cython.final
cdef class Repeater:
    cdef public RepeatRules rules
    cdef object _limits
    cdef list _waiting
    cdef object _number
    cdef public object dropped
