cimport cython
from bccnd.core.observing.counters cimport NamedCounts


@cython.final
cdef class LocalIdentity:
    cdef public object first
    cdef public object next
    cdef public object run
    cdef public int users
    cdef public bint started
    cdef public double until
    cdef public bint reported

    cdef object next_seq(self, object clock_us)
    cdef use(self, object seq, object following)
    cdef bint has_sent(self) except -1


cdef class LocalIdentities:
    cdef dict _by_src
    cdef readonly object _released
    cdef NamedCounts _counted

    cpdef bint has(self, bytes src) except -1
    cpdef bint sweep(self, double now) except -1
