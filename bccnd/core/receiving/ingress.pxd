cimport cython
from bccnd.core.observing.counters cimport GroupCounters, SegmentCounters
from bccnd.core.tracking.dedup cimport TrackerTable
from bccnd.core.tracking.source cimport Source
from bccnd.core.tracking.tracker_limits cimport TrackerLimits
from bccnd.core.receiving.deliveries cimport Deliveries
from bccnd.core.trust.integrity cimport IntegrityChecker
from bccnd.core.matching.receivers cimport Receivers
from bccnd.core.matching.routes cimport Route, RouteTables
from bccnd.native.buffers.header cimport Header
from bccnd.native.buffers.dict_by_slice cimport Index
from bccnd.native.buffers.sent_datagrams cimport SentDatagrams

cdef Receivers NO_RECEIVERS
cdef int ACCEPTED
cdef int DUPLICATE
cdef int INTERNAL_ERROR
cdef int LAST_ACCEPTED
cdef int NOT_ADDRESSED
cdef int LAST_OF_SOURCE
cdef int LOOPED
cdef int UNKNOWN_SENDER
cdef Route NO_ROUTE


@cython.final
cdef class Ingress:
    cdef public IntegrityChecker checker
    cdef readonly Py_ssize_t ceiling
    cdef public object too_old_for_links
    cdef readonly GroupCounters groups
    cdef readonly TrackerLimits limits
    cdef TrackerTable _sources
    cdef object _anonymous
    cdef RouteTables _routes
    cdef object _on_heartbeat
    cdef object _on_report
    cdef object _on_conflict
    cdef object _on_bug
    cdef Header _header
    cdef Route _route
    cdef dict _relayed
    cdef public long long own_until_ns
    cdef bytes _own_prefix

    @cython.locals(
        routes=RouteTables, header=Header, taps=tuple, tap=Receivers, links=Receivers, accepted=long,
        number=Py_ssize_t, raw=bytes, verdict=int, route=Route, verdicts=list,
    )
    cpdef list feed(
        self, Deliveries deliveries, SegmentCounters counters, list datagrams, object peers, double now,
        long long received_ns, bytes link_head=*, bint from_link=*, SentDatagrams sent=*,
    )
    @cython.locals(
        header=Header, sources=TrackerTable, routes=RouteTables, checker=IntegrityChecker,
        at=Py_ssize_t, source=Source, src=bytes, verdict=int,
    )
    cdef int _judge(
        self, bytes raw, object peers, Py_ssize_t number, double now, long long received_ns, bint from_link,
        SentDatagrams sent,
    ) except -100
    @cython.locals(route=Route, header=Header, behind=Py_ssize_t, src=bytes)
    cdef int _deliver_special(
        self, Deliveries deliveries, int verdict, bytes raw, object peers, Py_ssize_t number, double now,
        long long received_ns,
    ) except -100
    cdef bint _came_back(self, bytes raw) except -1
