cimport cython
from bccnd.native.system cimport clock
from bccnd.net.loop cimport Loop
from bccnd.net.segment_sender cimport SegmentSender


@cython.final
cdef class Transmitter:
    cdef Loop _loop
    cdef list _segments
    cdef tuple _fds
    cdef object _repeater
    cdef list _timers
    cdef long long _round

    @cython.locals(error=str)
    cpdef broadcast(self, bytes frame, bytes datagram)
    @cython.locals(segment=SegmentSender)
    cpdef send(self, bytes datagram)
