cimport cython
from bccnd.core.lru cimport LruTable, Source
from bccnd.core.sender_counts cimport SenderTable
from bccnd.native.slice_dict cimport Index

cdef int ACCEPTED
cdef int LAST_ACCEPTED
cdef int STALE


cdef class LocalIdentity:
    cdef public object first
    cdef public object next
    cdef public double until
    cdef public bint reported


cdef class TrackerTable:
    cdef LruTable _lru
    cdef public SenderTable senders
    cdef readonly object reported
    cdef Index _index
    cdef readonly dict _own
    cdef readonly object _released
    cdef readonly object _gaps
    cdef public object missing
    cdef public object lost
    cdef public dict lost_by_source
    cdef public object restarts
    cdef public object jumps
    cdef public object conflicts
    cdef public object own_evicted
    cdef public object restarts_evicted
    cdef public object expired
    cdef public object evicted
    cdef public object tracker_log
    cdef object _sanity
    cdef object _mask
    cdef double _horizon
    cdef int _late
    cdef bint _monotonic
    cdef bint _linked
    cdef dict _ended
    cdef double _expire
    cdef Py_ssize_t _max

    @cython.locals(source=Source)
    cpdef int judge(self, bytes src, unsigned long long seq, double now, bint from_link=*) except -100
    @cython.locals(found=Source)
    cpdef Source get_slice(self, bytes raw, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(verdict=int)
    cpdef int follow(self, Source source, unsigned long long seq, double now, bint from_link=*) except -100
    cpdef count_duplicate(self, bytes src)
    cpdef bint is_local(self, bytes src) except -1
    @cython.locals(source=Source)
    cpdef int judge_new(self, bytes src, object seq, double now) except -100
    cdef int _place(self, Source source, object seq, double now, bint from_link) except -100
    cdef int _backward(self, Source source, object seq, double now, bint from_link) except -100
    cdef _advance(self, Source source, object step, double now)
    cdef _mark(self, Source source, object seq, int verdict)
    cdef _hear_sender(self, Source source, double now)
    cdef _remember_restart(self, Source source, double now)
    cdef _new_epoch(self, Source source, object seq)
    cdef _lose_missing(self, Source source)
    cdef _lose(self, Source source, object gone)
    cdef _open_gap(self, Source source, object low, object high, double now)
    cdef _remove(self, Source source)
    cpdef Source start(self, bytes src, object seq, double now)
    cpdef drop(self, bytes src)
    cpdef pass_time(self, double now)
    cdef _open_gap_for_all(self, Source source, double now)
    @cython.locals(source=Source)
    cpdef Source restore(self, bytes src, tuple seqs, double heard, double rank, double now)
    @cython.locals(source=Source)
    cpdef settle(self, double now)
