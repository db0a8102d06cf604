cimport cython
from bccnd.bus.clients.client cimport Client
from bccnd.bus.delivery.fanout cimport Fanout
from bccnd.bus.incoming.publisher cimport Publisher
from bccnd.bus.delivery.client_queues cimport ClientQueues
from bccnd.core.wire cimport frames
from bccnd.core.observing.counters cimport BusCounters
from bccnd.core.matching.routes cimport Route
from bccnd.core.sending.user_quota cimport Quota, UserAccount
from bccnd.native.buffers.datagram cimport find_nul
from bccnd.native.system cimport clock
from bccnd.native.system.sockio cimport PacketReceiver
from bccnd.net.loop cimport Handler, Loop

cdef int GONE
cdef int HALF_CLOSED
cdef int READABLE
cdef int WRITABLE
cdef Py_ssize_t KEY
cdef Py_ssize_t MAX_PACKET
cdef int _MARK
cdef double BUSY


cdef class ClientEvents(Handler):
    cdef PacketReader _reader
    cdef Client _client

    cdef on_events(self, unsigned int events)


@cython.final
cdef class PacketReader:
    cdef Loop _loop
    cdef readonly PacketReceiver receiver
    cdef object _registry
    cdef Quota _quota
    cdef BusCounters _counters
    cdef Fanout _fanout
    cdef ClientQueues _queues
    cdef Publisher _publisher
    cdef object _backpressure
    cdef object _replies
    cdef object _requests
    cdef public bint draining

    @cython.locals(begun=double)
    cpdef on_events(self, Client client, unsigned int events)
    cdef _charge(self, UserAccount account, double begun)
    @cython.locals(account=UserAccount, begun=double, left=double, busy=bint)
    cpdef bint read(self, Client client) except -1
    @cython.locals(receiver=PacketReceiver, packet=bytes, _=int)
    cdef bint _read_until(self, Client client, double deadline, int most) except -1
    cdef _on_end_of_file(self, Client client)
    @cython.locals(nul=Py_ssize_t, plain=bint, quota=Quota)
    cpdef process(self, Client client, bytes packet)
    @cython.locals(verb=bytes, key=bytes, payload=bytes)
    cdef bint _is_message(self, Client client, bytes packet) except -1
    @cython.locals(publisher=Publisher, refused=str, route=Route)
    cpdef publish(self, Client client, bytes packet, Py_ssize_t nul)
