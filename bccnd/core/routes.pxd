cdef class Route:
    cdef public long long carried
    cdef readonly bytes frame_head
    cdef readonly tuple plain
    cdef readonly tuple meta
    cdef readonly tuple groups
    cdef readonly tuple cut
    cdef readonly bytes heartbeat
    cdef readonly bint unaddressed
    cdef readonly bint special
