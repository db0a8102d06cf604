cimport cython
from bccnd.core.observing.counters cimport NamedCounts


@cython.final
cdef class LocalIdentity:
    cdef public unsigned long long first
    cdef public unsigned long long next
    cdef public unsigned long long run
    cdef public int users
    cdef public bint started
    cdef public double until
    cdef public bint reported

    cdef unsigned long long next_seq(self, unsigned long long clock_us) except? 0
    cdef use(self, unsigned long long seq, unsigned long long following)
    cdef bint has_sent(self) except -1


cdef class LocalIdentities:
    cdef dict _by_src
    cdef readonly object _released
    cdef NamedCounts _counted

    cpdef bint has(self, bytes src) except -1
    cpdef bint sweep(self, double now) except -1
