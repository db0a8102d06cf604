cimport cython
from bccnd.core.observing.counters cimport BusCounters
from bccnd.core.wire cimport frames
from bccnd.native.system cimport sockio


cpdef bytes batch_packet(list messages)


@cython.final
cdef class ClientQueues:
    cdef readonly BusCounters counters
    cdef readonly dict by_fd
    cdef readonly sockio.Sender sender
    cdef readonly set waiting
    cdef readonly set blockers
    cdef readonly set batched
    cdef object _loop
    cdef object _routes
    cdef object _rules
    cdef object _registry
    cdef public object on_room

    cpdef enqueue_all(self, object client, list messages)
    cpdef enqueue(self, object client, bytes frame)
