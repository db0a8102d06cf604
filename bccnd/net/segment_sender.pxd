cimport cython
from bccnd.core.observing.counters cimport SegmentCounters
from bccnd.native.buffers.sent_datagrams cimport SentDatagrams
from bccnd.native.system cimport clock
from bccnd.native.system.sockio cimport send_to


cdef class SegmentSender:
    cdef readonly SegmentCounters counters
    cdef readonly SentDatagrams sent
    cdef readonly int fd
    cdef bytes _address

    @cython.locals(failed=int)
    cpdef str send(self, bytes datagram)
