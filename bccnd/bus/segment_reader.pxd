cimport cython
from bccnd.core.tracker_log cimport TrackerLog
from bccnd.core.counters cimport Histogram, SegmentCounters
from bccnd.core.ingress cimport Ingress
from bccnd.native.inflight cimport InflightState
from bccnd.native.sockio cimport Receiver
from bccnd.bus.fanout cimport Clients

cdef long long LATE_NS
cdef long long MAX_WAIT_NS


cdef class SegmentReader:
    cdef object _segment
    cdef Receiver _receiver
    cdef SegmentCounters _counters
    cdef object _peers
    cdef Ingress _ingress
    cdef Clients _clients
    cdef Histogram _forward
    cdef object _limited
    cdef bint _late
    cdef InflightState _inflight
    cdef TrackerLog _tracker_log

    cpdef bint drain(self, int rounds=*) except -1
    @cython.locals(
        datagrams=list, deliveries=list, wall=longlong, stamp=longlong, waited=longlong, now=double, late=bint, one_by_one=bint
    )
    cdef bint _take(self, int rounds) except -1
