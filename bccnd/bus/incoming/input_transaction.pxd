cimport cython
from bccnd.bus.delivery.fanout cimport Fanout
from bccnd.native.memory.inflight cimport InflightState


@cython.final
cdef class InputTransaction:
    cdef Fanout _fanout
    cdef InflightState _inflight

    cpdef begin(self, double now)
    cpdef commit(self)
