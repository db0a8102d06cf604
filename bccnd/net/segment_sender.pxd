cimport cython
from bccnd.core.observing.counters cimport SegmentCounters
from bccnd.native.buffers.sent_datagrams cimport SentDatagrams
from bccnd.native.system cimport clock
from bccnd.native.system.sockio cimport BroadcastSender


@cython.final
cdef class SegmentSender:
    cdef readonly SegmentCounters counters
    cdef public BroadcastSender broadcaster
    cdef readonly SentDatagrams sent

    @cython.locals(failed=int)
    cpdef broadcast(self, bytes datagram)
