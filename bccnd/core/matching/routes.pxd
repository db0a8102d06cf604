from bccnd.core.matching.receivers cimport Receivers
from bccnd.native.buffers.dict_by_slice cimport Index


cdef class Route:
    cdef public long long carried
    cdef readonly bytes frame_head
    cdef readonly Receivers plain
    cdef readonly Receivers meta
    cdef readonly tuple groups
    cdef readonly bytes heartbeat
    cdef readonly bint report
    cdef readonly bint unaddressed
    cdef readonly bint special
    cdef public object permitted


cdef class RouteTables:
    cdef public tuple taps
    cdef public Receivers links
    cdef public Receivers links_here
    cdef public Index known
