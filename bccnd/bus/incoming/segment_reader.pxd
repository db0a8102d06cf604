cimport cython
from bccnd.core.observing.latency_histogram cimport LatencyHistogram
from bccnd.core.receiving.deliveries cimport Deliveries
from bccnd.core.receiving.ingress cimport Ingress
from bccnd.core.receiving.judgement cimport Arrival
from bccnd.native.system cimport clock
from bccnd.native.system.sockio cimport Receiver
from bccnd.net.loop cimport Handler
from bccnd.bus.delivery.fanout cimport Fanout

cdef Py_ssize_t BATCH
cdef int ROUNDS
cdef long long LATE_NS
cdef long long MAX_WAIT_NS


cdef class SegmentReader(Handler):
    cdef object _segment
    cdef Receiver _receiver
    cdef Arrival _arrival
    cdef Ingress _ingress
    cdef Fanout _fanout
    cdef LatencyHistogram _forward
    cdef long long _oldest
    cdef Deliveries _deliveries

    cdef on_events(self, unsigned int events)
    @cython.locals(more=bint)
    cpdef bint read_available(self, int rounds=*) except -1
    @cython.locals(_=int, receiver=Receiver, datagrams=list)
    cdef bint _process_batches(self, int rounds) except -1
    @cython.locals(
        batch=Arrival, deliveries=Deliveries, wall=longlong, stamp=longlong, waited=longlong, latest=double, late=bint,
    )
    cdef _process(self, list datagrams)
