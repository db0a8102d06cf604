cimport cython
from bccnd.bus.clients.client cimport Client
from bccnd.bus.delivery.fanout cimport Fanout
from bccnd.core.matching.receivers cimport Receivers
from bccnd.core.matching.routes cimport Route, RouteTables
from bccnd.core.sending.datagram_builder cimport DatagramBuilder
from bccnd.core.sending.redundancy cimport Repeater
from bccnd.native.system cimport clock
from bccnd.net.loop cimport Loop
from bccnd.net.segment_sender cimport SegmentSender

cdef Py_ssize_t KEY


cdef Receivers _without_echo(Client client, Receivers receivers)


@cython.final
cdef class Publisher:
    cdef RouteTables _routes
    cdef Fanout _fanout
    cdef DatagramBuilder _builder
    cdef Loop _loop
    cdef tuple _segments
    cdef tuple _fds
    cdef Repeater _repeater
    cdef list _timers

    cpdef str refusal(self, Client client, bytes key)
    cpdef Route route(self, bytes key)
    cpdef blocking_client(self, Client client, bytes key, Route route, Py_ssize_t size)
    @cython.locals(route=Route)
    cpdef Route permitted_route(self, Client client, bytes packet, Py_ssize_t nul)
    @cython.locals(clock_ns=longlong, seq="unsigned long long", datagram=bytes, frame=bytes)
    cpdef str publish(self, bytes identity, bytes packet, Py_ssize_t nul, Route route, Client client=*)
    cdef _send_locally(self, Client client, bytes packet, Py_ssize_t nul)
    @cython.locals(segment=SegmentSender, error=str, failed=str)
    cpdef str send(self, bytes datagram)
