cimport cython
from bccnd.core.counters cimport SegmentCounters
from bccnd.core.dedup cimport TrackerTable
from bccnd.core.deliveries cimport Deliveries
from bccnd.core.integrity cimport IntegrityChecker
from bccnd.core.receivers cimport Receivers
from bccnd.core.routes cimport Route, RouteTables
from bccnd.native cimport scan
from bccnd.native.slice_dict cimport Index
from bccnd.native.spare_bytes cimport SpareBytes

cdef Receivers NOBODY
cdef int ACCEPTED
cdef int DUPLICATE
cdef int INTERNAL_ERROR
cdef int LAST_ACCEPTED
cdef int NOT_ADDRESSED
cdef int UNHEARD
cdef int _BAR
cdef int _COLON


@cython.final
cdef class Ingress:
    cdef public IntegrityChecker checker
    cdef readonly Py_ssize_t ceiling
    cdef public long long max_age_ns
    cdef public object too_old_for_links
    cdef public list group_messages
    cdef public list group_bytes
    cdef TrackerTable _sources
    cdef object _anonymous
    cdef RouteTables _routes
    cdef object _on_heartbeat
    cdef object _on_report
    cdef object _on_conflict
    cdef object _on_bug
    cdef SpareBytes _frames
    cdef dict _relayed

    @cython.locals(
        checker=IntegrityChecker, sources=TrackerTable, routes=RouteTables,
        known=Index, taps=tuple, tap=Receivers, links=Receivers, accepted=long, number=Py_ssize_t,
        raw=bytes, at=Py_ssize_t, first=Py_ssize_t, second=Py_ssize_t, bar=Py_ssize_t, behind=Py_ssize_t,
        found=longlong, seq=ulonglong, verdict=int, remembered=Route, route=Route, source=Py_ssize_t, src=bytes,
    )
    cpdef feed_into(
        self, Deliveries deliveries, SegmentCounters counters, list datagrams, object peers, double now,
        long long received_ns, bytes link_head=*, bint from_link=*,
    )
    cdef int _judge_parsed(
        self, bytes src, object seq, double now, object peers, Py_ssize_t number, bytes raw, Py_ssize_t at, bint from_link
    ) except -100
    cdef bint _came_back(self, bytes raw) except -1
    cdef _count_groups(self, tuple groups, Py_ssize_t size)
