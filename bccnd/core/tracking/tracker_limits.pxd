cimport cython


@cython.final
cdef class TrackerLimits:
    cdef readonly object sanity
    cdef readonly object mask
    cdef readonly double horizon
    cdef readonly int late
    cdef readonly bint monotonic
    cdef readonly double expire
    cdef readonly Py_ssize_t max_sources
    cdef readonly bint linked
