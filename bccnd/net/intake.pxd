cimport cython
from bccnd.core.annals cimport Annals
from bccnd.core.counters cimport Histogram, SegmentCounters
from bccnd.core.ingress cimport Ingress
from bccnd.leaf cimport clock
from bccnd.leaf.ledger cimport Ledger
from bccnd.leaf.packets cimport Receiver
from bccnd.net.clients cimport Clients

cdef long long LATE_NS
cdef long long MAX_WAIT_NS


cdef class Intake:
    cdef object _segment
    cdef Receiver _receiver
    cdef SegmentCounters _counters
    cdef object _peers
    cdef Ingress _ingress
    cdef Clients _clients
    cdef Histogram _forward
    cdef object _limited
    cdef bint _late
    cdef Ledger _ledger
    cdef Annals _annals

    cpdef bint drain(self, int rounds=*) except -1
    @cython.locals(
        datagrams=list, deliveries=list, wall=longlong, stamp=longlong, waited=longlong, now=double, late=bint, one_by_one=bint
    )
    cdef bint _take(self, int rounds) except -1
