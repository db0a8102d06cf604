cdef class SenderCounts:
    cdef readonly bytes host
    cdef readonly unsigned long long since_ms
    cdef public unsigned long long received
    cdef public unsigned long long lost
    cdef public unsigned long long late
    cdef public unsigned long long duplicate
    cdef public double heard
    cdef public double placed
    cdef public bint evicted


cdef class SenderTable:
    cdef dict _by_host
    cdef object _max_hosts
    cdef public unsigned long long since_ms
    cdef public object evicted

    cpdef SenderCounts of(self, bytes src, double now)
