cimport cython
from bccnd.bus.clients.client cimport Client
from bccnd.bus.delivery.fanout cimport Fanout
from bccnd.core.sending.egress cimport Egress
from bccnd.core.matching.receivers cimport Receivers
from bccnd.core.matching.routes cimport Route, RouteTables
from bccnd.native.system cimport clock

cdef Py_ssize_t KEY


cdef Receivers _without_echo(Client client, Receivers receivers)


@cython.final
cdef class Publisher:
    cdef RouteTables _routes
    cdef Fanout _fanout
    cdef Egress _egress
    cdef object _broadcast

    cpdef str refusal(self, Client client, bytes key)
    cpdef Route route(self, bytes key)
    cpdef blocking_client(self, Client client, bytes key, Route route, Py_ssize_t size)
    @cython.locals(route=Route)
    cpdef Route permitted_route(self, Client client, bytes packet, Py_ssize_t nul)
    @cython.locals(clock_ns=longlong, datagram=bytes, frame=bytes)
    cpdef str publish(self, bytes identity, bytes packet, Py_ssize_t nul, Route route, Client client=*)
    cdef _send_locally(self, Client client, bytes packet, Py_ssize_t nul)
