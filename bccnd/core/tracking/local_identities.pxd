from bccnd.core.observing.counters cimport NamedCounts


cdef class LocalIdentity:
    cdef public object first
    cdef public object next
    cdef public double until
    cdef public bint reported


cdef class LocalIdentities:
    cdef dict _by_src
    cdef object _kept
    cdef readonly object _released
    cdef NamedCounts _counted

    cpdef bint has(self, bytes src) except -1
    cpdef bint sweep(self, double now) except -1
