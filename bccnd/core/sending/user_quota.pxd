cimport cython


@cython.final
cdef class UserAccount:
    cdef readonly object uid
    cdef public long long clients
    cdef public long long subscriptions
    cdef public long long queue_bytes
    cdef public double tokens
    cdef public double stamp
    cdef public long long round
    cdef public double seconds
    cdef readonly object listings
    cdef readonly object blocked
    cdef public object timer

    @cython.locals(debt=double)
    cpdef double left_of(self, long long number, double round_seconds) except? -1.0
    cpdef charge(self, long long number, double round_seconds, double seconds)


@cython.final
cdef class Quota:
    cdef public double round_seconds
    cdef public double rate
    cdef dict _accounts

    cpdef bint exceeds_rate(self, UserAccount account, double now) except -1
    @cython.locals(rate=double)
    cpdef double publish(self, UserAccount account, double now) except? -1.0
