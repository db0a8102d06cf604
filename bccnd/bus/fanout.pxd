cimport cython
from bccnd.bus.send_queues cimport SendQueues, batch_packet
from bccnd.core.counters cimport BusCounters
from bccnd.core.fanout_groups cimport FanoutGroups, portions
from bccnd.native cimport sockio
from bccnd.net.loop cimport Loop


cdef class _Split:
    cdef tuple receivers
    cdef tuple batched
    cdef tuple single


@cython.final
cdef class Fanout:
    cdef readonly SendQueues queues
    cdef BusCounters _counters
    cdef dict _clients
    cdef sockio.Sender _sender
    cdef set _waiting
    cdef set _batched
    cdef dict _splits
    cdef Py_ssize_t _remembered
    cdef FanoutGroups _batches
    cdef FanoutGroups _groups
    cdef dict _received
    cdef bint _was_broadcast
    cdef readonly bint due
    cdef Loop _loop

    @cython.locals(receivers=tuple, single=tuple, frame=bytes, messages=list)
    cpdef deliver(self, list deliveries)
    cpdef send(self, tuple receivers, bytes frame)
    @cython.locals(split=_Split)
    cpdef send_alone(self, tuple receivers, bytes frame)
    @cython.locals(sent=Py_ssize_t, fd=int)
    cdef _send_each(self, tuple receivers, bytes frame)
    @cython.locals(failed=int)
    cdef bint _send_one(self, int fd, bytes frame) except -1
    @cython.locals(sent=Py_ssize_t, count=Py_ssize_t, taken=Py_ssize_t, fd=int)
    cdef _send_all(self, tuple receivers, list messages)
    @cython.locals(split=_Split)
    cdef tuple _unbatched(self, tuple receivers, bytes frame)
    @cython.locals(split=_Split)
    cdef _Split _split_of(self, tuple receivers)
    cdef _forget_splits(self)
    @cython.locals(receivers=tuple, messages=list, some=list)
    cpdef send_batches(self)
    cpdef bint may_block(self) except -1
    @cython.locals(packet=bytes, fd=int, failed=int)
    cdef _send_batch(self, tuple receivers, list messages)
