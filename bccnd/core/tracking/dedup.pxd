cimport cython
from bccnd.core.observing.counters cimport NamedCounts
from bccnd.core.tracking.local_identities cimport LocalIdentities
from bccnd.core.tracking.sender_counts cimport SenderTable
from bccnd.core.tracking.source cimport Source, set_window
from bccnd.core.tracking.source_table cimport SourceTable
from bccnd.core.tracking.tracker_limits cimport TrackerLimits

cdef int ACCEPTED
cdef int LAST_ACCEPTED
cdef int STALE


cdef class TrackerTable:
    cdef readonly SourceTable table
    cdef readonly LocalIdentities local
    cdef readonly object restarts
    cdef readonly object losses
    cdef readonly object _gaps
    cdef public object missing
    cdef readonly NamedCounts counted
    cdef public SenderTable senders
    cdef readonly object reported
    cdef readonly TrackerLimits limits

    cpdef resume(self, Source source, double now)
    cpdef Source get(self, bytes src)
    @cython.locals(source=Source)
    cpdef int judge(self, bytes src, unsigned long long seq, double now, bint from_link=*) except -100
    cpdef Source find(self, bytes raw, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(verdict=int)
    cpdef int judge_next(self, Source source, unsigned long long seq, double now, bint from_link=*) except -100
    cdef _set_sender(self, Source source, double now)
    cdef _hear_sender(self, Source source, double now)
    @cython.locals(source=Source)
    cpdef int judge_new(self, bytes src, object seq, double now) except -100
    cpdef Source start(self, bytes src, object seq, double now)
    cdef int _judge_out_of_order(self, Source source, object seq, double now, bint from_link) except -100
    cdef int _judge_backward(self, Source source, object seq, double now, bint from_link) except -100
    @cython.locals(source=Source)
    cpdef int predict(self, bytes src, object seq, double now) except -100
    cdef _advance(self, Source source, object step, double now)
    @cython.locals(late=bint)
    cdef _mark_seen(self, Source source, object seq, int verdict)
    cdef _new_epoch(self, Source source, object seq)
    cdef _lose_missing(self, Source source)
    cdef _lose(self, Source source, object gone)
    cdef _open_gap(self, Source source, object low, object high, double now)
    @cython.locals(source=Source)
    cdef _close_gap(self)
    @cython.locals(oldest=Source)
    cdef _evict(self)
    cdef _remove(self, Source source)
    @cython.locals(source=Source)
    cpdef drop(self, bytes src)
