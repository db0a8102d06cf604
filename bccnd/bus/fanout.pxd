cimport cython
from bccnd.core.counters cimport BusCounters
from bccnd.core.fanout_groups cimport FanoutGroups
from bccnd.native cimport sockio


cdef class _Split:
    cdef tuple receivers
    cdef tuple batched
    cdef tuple single


cdef class Clients:
    cdef public object limits
    cdef readonly BusCounters counters
    cdef readonly dict by_fd
    cdef readonly set _waiting
    cdef readonly set _blockers
    cdef readonly set _batched
    cdef dict _splits
    cdef Py_ssize_t _remembered
    cdef FanoutGroups _batches
    cdef FanoutGroups _runs
    cdef sockio.Sender _sender
    cdef object _inflight
    cdef dict _had
    cdef bint _due
    cdef object _loop
    cdef object _routes
    cdef object _end
    cdef object _make_room
    cdef object _limited

    @cython.locals(receivers=tuple, single=tuple, frame=bytes, messages=list)
    cpdef deliver(self, list deliveries)
    cpdef send(self, tuple receivers, bytes frame)
    @cython.locals(sent=Py_ssize_t, fd=int)
    cdef _send_each(self, tuple receivers, bytes frame)
    @cython.locals(failed=int)
    cdef bint _send_one(self, int fd, bytes frame) except -1
    @cython.locals(sent=Py_ssize_t, count=Py_ssize_t, taken=Py_ssize_t, fd=int)
    cdef _send_all(self, tuple receivers, list messages)
    @cython.locals(split=_Split)
    cdef tuple _unbatched(self, tuple receivers, bytes frame)
    cdef _Split _split(self, tuple receivers)
    cdef _forget_splits(self)
    cpdef send_batches(self)
    @cython.locals(packet=bytes, fd=int, failed=int)
    cdef _send_batch(self, tuple receivers, list messages)
