from bccnd.native.counts cimport Counts


cdef class SegmentCounters:
    cdef readonly object name
    cdef public long long received
    cdef readonly Counts verdict_counts
    cdef public long long sent
    cdef readonly dict send_errors


cdef class BusCounters:
    cdef public long long deliveries
    cdef public long long published
    cdef readonly dict refused
    cdef readonly dict ended
    cdef readonly dict held
    cdef public long long untold
    cdef readonly dict dropped
    cdef readonly dict errors
