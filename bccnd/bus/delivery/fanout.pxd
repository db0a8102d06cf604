cimport cython
from bccnd.bus.delivery.client_queues cimport ClientQueues, batch_packet
from bccnd.core.observing.counters cimport BusCounters
from bccnd.core.receiving.deliveries cimport Deliveries
from bccnd.core.sending.message_groups cimport MessageGroups, portions
from bccnd.core.matching.receivers cimport Part, Receivers
from bccnd.native.system cimport sockio
from bccnd.net.loop cimport Loop


@cython.final
cdef class Fanout:
    cdef readonly ClientQueues queues
    cdef BusCounters _counters
    cdef dict _clients
    cdef sockio.Sender _sender
    cdef set _waiting
    cdef set _batched
    cdef long _modes
    cdef MessageGroups _batches
    cdef MessageGroups _groups
    cdef readonly bint due
    cdef public bint gathers
    cdef Loop _loop

    @cython.locals(number=Py_ssize_t, receivers=Receivers, frame=bytes, fds=tuple, messages=list)
    cpdef deliver(self, Deliveries deliveries)
    cpdef send(self, Receivers receivers, bytes frame)
    @cython.locals(fds=tuple, messages=list, some=list)
    cpdef send_batches(self)
    @cython.locals(sent=Py_ssize_t, count=Py_ssize_t, fd=int, failed=int)
    cdef _send_packet(self, tuple fds, bytes packet, list messages)
    cdef _send_batch(self, tuple fds, list messages)
    @cython.locals(sent=Py_ssize_t, count=Py_ssize_t, taken=Py_ssize_t, fd=int, message=bytes)
    cdef _send_packets(self, tuple fds, list messages)
    cdef Receivers _divided(self, Receivers receivers)
    cdef _gather(self, MessageGroups groups, Part part, bytes frame)
    @cython.locals(fds=tuple, messages=list)
    cdef _send_groups(self)
    cpdef bint may_block(self) except -1
