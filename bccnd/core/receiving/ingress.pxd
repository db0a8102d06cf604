cimport cython
from bccnd.core.observing.counters cimport GroupCounters, SegmentCounters
from bccnd.core.tracking.dedup cimport TrackerTable
from bccnd.core.tracking.source cimport Source
from bccnd.core.tracking.tracker_limits cimport TrackerLimits
from bccnd.core.receiving.deliveries cimport Deliveries
from bccnd.core.receiving.judgement cimport Arrival, Judgement
from bccnd.core.trust.integrity cimport IntegrityChecker
from bccnd.core.matching.receivers cimport Receivers
from bccnd.core.matching.routes cimport Route, RouteTables
from bccnd.native.buffers.header cimport Header
from bccnd.native.buffers.dict_by_slice cimport Index

cdef Receivers NO_RECEIVERS
cdef int ACCEPTED
cdef int DUPLICATE
cdef int INTERNAL_ERROR
cdef int LAST_ACCEPTED
cdef int NOT_ADDRESSED
cdef int LAST_OF_SOURCE
cdef int LOOPED
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
    cdef Judgement _judgement
    cdef dict _relayed
    cdef public long long own_until_ns
    cdef bytes _own_prefix

    @cython.locals(
        routes=RouteTables, counters=SegmentCounters, judgement=Judgement, header=Header, taps=tuple, tap=Receivers,
        links=Receivers, accepted=long, number=Py_ssize_t, raw=bytes, verdict=int, route=Route, verdicts=list,
    )
    cpdef list feed(self, Deliveries deliveries, Arrival arrival, list datagrams)
    cdef int _judge(self, Judgement judgement, Arrival arrival, bytes raw, Py_ssize_t number) except -1
    @cython.locals(
        header=Header, sources=TrackerTable, routes=RouteTables, at=Py_ssize_t, source=Source, src=bytes,
    )
    cdef int _read(self, Judgement judgement, bytes raw, bint counted) except -1
    @cython.locals(header=Header, sources=TrackerTable, source=Source, src=bytes, verdict=int)
    cdef int _judge_by_source(
        self, Judgement judgement, Arrival arrival, bytes raw, Py_ssize_t number
    ) except -100
    @cython.locals(judgement=Judgement, header=Header, src=bytes)
    cpdef Judgement predict(self, bytes raw, object peer, double now)
    cdef int _judge_anonymous(self, Arrival arrival, bytes body, bytes raw, Py_ssize_t number) except -1
    @cython.locals(route=Route, header=Header, behind=Py_ssize_t, src=bytes)
    cdef _deliver_special(
        self, Deliveries deliveries, Judgement judgement, Arrival arrival, bytes raw, Py_ssize_t number
    )
    cpdef bint wants_own(self) except -1
    cpdef count_own(self, SegmentCounters counters, int count)
    cdef bint _came_back(self, bytes raw) except -1
