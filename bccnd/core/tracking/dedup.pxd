cimport cython
from bccnd.core.observing.counters cimport NamedCounts
from bccnd.core.tracking.local_identities cimport LocalIdentities
from bccnd.core.tracking.sender_counts cimport SenderCounts, SenderTable
from bccnd.core.tracking.source_table cimport SourceTable
from bccnd.native.memory.slots cimport SlotMemory
from bccnd.native.memory.source_view cimport Source
from bccnd.native.memory.undo_memory cimport SlotPointer

cdef int ACCEPTED
cdef int LAST_ACCEPTED
cdef int STALE


cdef class TrackerTable:
    cdef readonly SlotMemory memory
    cdef readonly SourceTable table
    cdef readonly LocalIdentities local
    cdef object _restarts
    cdef readonly object losses
    cdef readonly object _gaps
    cdef public object missing
    cdef readonly NamedCounts counted
    cdef public SenderTable senders
    cdef readonly object reported
    cdef list _sender_of
    cdef public object rules
    cdef object _sanity
    cdef object _mask
    cdef double _horizon
    cdef int _late
    cdef bint _monotonic
    cdef bint _linked
    cdef double _expire
    cdef Py_ssize_t _max

    @cython.locals(number=Py_ssize_t)
    cpdef int judge(self, bytes src, unsigned long long seq, double now, bint from_link=*) except -100
    cpdef Py_ssize_t find(self, bytes raw, Py_ssize_t start, Py_ssize_t end) except -2
    @cython.locals(verdict=int, at=SlotPointer, sender=SenderCounts)
    cpdef int follow(self, Py_ssize_t number, unsigned long long seq, double now, bint from_link=*) except -100
    cdef _set_sender(self, Py_ssize_t number, bytes src, double now)
    @cython.locals(sender=SenderCounts)
    cdef _hear_sender(self, Py_ssize_t number, double now)
    @cython.locals(sender=SenderCounts)
    cpdef count_duplicate(self, bytes src)
    cdef Source _source(self, Py_ssize_t number)
    @cython.locals(source=Source)
    cpdef int judge_new(self, bytes src, object seq, double now) except -100
    cpdef Py_ssize_t start(self, bytes src, object seq, double now) except -2
    @cython.locals(at=SlotPointer)
    cdef int _place(self, Py_ssize_t number, object seq, double now, bint from_link) except -100
    @cython.locals(at=SlotPointer)
    cdef int _backward(self, Py_ssize_t number, object seq, double now, bint from_link) except -100
    @cython.locals(number=Py_ssize_t, at=SlotPointer)
    cpdef int predict(self, bytes src, object seq, double now) except -100
    @cython.locals(at=SlotPointer)
    cdef _advance(self, Py_ssize_t number, object step, double now)
    cdef _set_window(self, Py_ssize_t number, object absent, object missing)
    @cython.locals(at=SlotPointer, late=bint)
    cdef _mark(self, Py_ssize_t number, object seq, int verdict)
    @cython.locals(at=SlotPointer)
    cdef _new_epoch(self, Py_ssize_t number, object seq)
    @cython.locals(at=SlotPointer)
    cdef _lose_missing(self, Py_ssize_t number)
    cdef _lose(self, Py_ssize_t number, object gone)
    cdef _open_gap(self, Source source, object low, object high, double now)
    @cython.locals(source=Source, number=Py_ssize_t)
    cdef _close_gap(self)
    cdef _evict(self)
    cdef _remove(self, Py_ssize_t number)
    cpdef drop(self, bytes src)
