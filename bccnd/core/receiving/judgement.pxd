cimport cython
from bccnd.core.matching.routes cimport Route
from bccnd.core.observing.counters cimport SegmentCounters
from bccnd.core.tracking.source cimport Source
from bccnd.native.buffers.header cimport Header
from bccnd.native.buffers.sent_datagrams cimport SentDatagrams

cdef int ACCEPTED
cdef Route NO_ROUTE


@cython.final
cdef class Arrival:
    cdef readonly SegmentCounters counters
    cdef readonly object peers
    cdef public double now
    cdef public long long received_ns
    cdef readonly SentDatagrams sent
    cdef readonly bytes link_head
    cdef readonly bint from_link


@cython.final
cdef class Judgement:
    cdef public int verdict
    cdef readonly Header header
    cdef public Source source
    cdef public Route route
