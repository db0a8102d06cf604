cimport cython
from bccnd.native.system cimport sockio
from bccnd.native.memory.slots cimport SlotMemory

ctypedef unsigned long long u64


@cython.final
cdef class InflightState:
    cdef readonly object memory
    cdef object _view
    cdef char *_base
    cdef bytearray _slots
    cdef int _casts
    cdef SlotMemory _attached

    cdef volatile u64 *_slot(self, int fd) noexcept
    cdef Py_ssize_t _slot_number(self, int fd) noexcept
    cpdef assign(self, int fd, Py_ssize_t slot)
    cpdef release(self, int fd)
    cpdef begin(self, int kind, long long number, int fd=*)
    cpdef finish(self)
    cpdef set_time(self, double now)
    cpdef count(self, int fd, long long messages)
    cpdef long long counted(self, int fd)
    cpdef set_next_seq(self, int fd, u64 seq)


cdef class Receiver(sockio.Receiver):
    cdef InflightState _inflight
    cdef long long _number

    cpdef list receive(self)


cdef class Sender(sockio.Sender):
    cdef InflightState _inflight

    cpdef load(self, list packets)
    cdef _lay_out(self, Py_ssize_t header_at, Py_ssize_t vector_at)
    cdef void _arm(self, Py_ssize_t slot, u64 weight, Py_ssize_t first, Py_ssize_t count, u64 length) noexcept
    cdef void _disarm(self, Py_ssize_t slot, u64 got) noexcept
    cdef int _single(self, int fd, bytes packet) noexcept
    cpdef Py_ssize_t send(self, int fd)
    cpdef int one(self, int fd, bytes packet, long weight=*) noexcept
    cpdef int waited(self, int fd, bytes packet, long weight, u64 length) noexcept


cdef class BroadcastSender(sockio.BroadcastSender):
    cdef InflightState _inflight
    cdef void *_header

    cpdef int cast(self, bytes datagram) noexcept


cdef class PacketReceiver(sockio.PacketReceiver):
    cdef InflightState _inflight
    cdef void *_header

    cpdef Py_ssize_t receive(self, int fd, long long number) except -2
