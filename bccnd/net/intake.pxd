cimport cython
from bccnd.core.counters cimport Histogram, SegmentCounters
from bccnd.core.ingress cimport Ingress
from bccnd.leaf cimport clock
from bccnd.leaf.packets cimport Receiver
from bccnd.net.clients cimport Clients


cdef class Intake:
    cdef object _segment
    cdef Receiver _receiver
    cdef SegmentCounters _counters
    cdef object _peers
    cdef Ingress _ingress
    cdef Clients _clients
    cdef Histogram _forward
    cdef object _limited

    cpdef bint drain(self) except -1
    @cython.locals(datagrams=list, deliveries=list, stamp=longlong)
    cdef bint _take(self) except -1
