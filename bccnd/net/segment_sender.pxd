cimport cython
from bccnd.core.observing.counters cimport SegmentCounters
from bccnd.native.system.sockio cimport BroadcastSender


@cython.final
cdef class SegmentSender:
    cdef readonly SegmentCounters counters
    cdef public BroadcastSender broadcaster

    @cython.locals(failed=int)
    cpdef broadcast(self, bytes datagram)
