from bccnd.native.slice_dict cimport Index


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


cdef class RouteTables:
    cdef public tuple taps
    cdef public tuple links
    cdef public tuple links_here
    cdef public Index known
