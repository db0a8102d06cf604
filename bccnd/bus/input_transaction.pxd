cimport cython
from bccnd.bus.fanout cimport Fanout
from bccnd.core.tracker_log cimport TrackerLog
from bccnd.native.inflight cimport InflightState


@cython.final
cdef class InputTransaction:
    cdef Fanout _fanout
    cdef InflightState _inflight
    cdef public TrackerLog tracker_log

    cpdef begin(self, double now)
    cpdef commit(self)
