"""Records the input in progress in shared memory, for the successor of a killed daemon; see inflight_layout.py.

Invariant: the memory can be read at any moment. The kernel itself writes there what it received and sent, so that the
successor can tell for each message whether it was sent. inflight.py declares the interface.
"""

import os
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, errno
from libc.string cimport memcpy, memset

from bccnd.native.memory.undo_memory cimport address_of
from bccnd.native.system cimport sockio
from bccnd.native.system.sockio cimport MSG_DONTWAIT, MSG_NOSIGNAL, c_send, iovec, mmsghdr, recvmmsg, sendmmsg
from bccnd.native.memory import inflight_layout as layout

cdef Py_ssize_t AT_SERIAL = layout.AT_SERIAL
cdef Py_ssize_t AT_OPEN = layout.AT_OPEN
cdef Py_ssize_t AT_KIND = layout.AT_KIND
cdef Py_ssize_t AT_NUMBER = layout.AT_NUMBER
cdef Py_ssize_t AT_NOW = layout.AT_NOW
cdef Py_ssize_t AT_SEQ = layout.AT_SEQ
cdef Py_ssize_t AT_SENDING = layout.AT_SENDING
cdef Py_ssize_t AT_WEIGHT = layout.AT_WEIGHT
cdef Py_ssize_t AT_BASE = layout.AT_BASE
cdef Py_ssize_t AT_FIRST = layout.AT_FIRST
cdef Py_ssize_t AT_COUNT = layout.AT_COUNT
cdef Py_ssize_t AT_LENGTH = layout.AT_LENGTH
cdef Py_ssize_t SLOTS = layout.SLOTS
cdef Py_ssize_t SLOT = layout.SLOT
cdef Py_ssize_t MAX_SLOTS = layout.MAX_SLOTS
cdef Py_ssize_t PACKETS = layout.PACKETS
cdef Py_ssize_t CASTS = layout.CASTS
cdef Py_ssize_t CAST = layout.CAST
cdef Py_ssize_t MAX_PACKETS = layout.MAX_PACKETS
cdef Py_ssize_t VECTORS = layout.VECTORS
cdef Py_ssize_t SINGLE = layout.SINGLE
cdef Py_ssize_t SINGLE_HEADER = layout.SINGLE_HEADER
cdef Py_ssize_t SINGLE_VECTOR = layout.SINGLE_VECTOR
cdef unsigned int NOTHING = layout.NOTHING
cdef int DATAGRAMS = layout.DATAGRAMS
cdef int BATCH = layout.BATCH
cdef int PACKET = layout.PACKET

if sizeof(mmsghdr) != layout.HEADER or sizeof(iovec) != layout.VECTOR:
    raise ImportError("the layout of struct mmsghdr or iovec is not the expected one")

# volatile: writes must happen in this order, because the process may be killed at any moment

cdef inline volatile u64 *_at(char *base, Py_ssize_t at) noexcept:
    return <volatile u64 *> (base + at)


@cython.final
cdef class InflightState:
    """The input in progress, and how many of its messages each client got."""

    def __init__(self, memory):
        self.memory = memory
        self._view = memoryview(memory)
        self._base = address_of(memory)
        self._slots = bytearray()

    def attach(self, SlotMemory slots):
        self._attached = slots

    @property
    def serial(self):
        return _at(self._base, AT_SERIAL)[0]

    cpdef assign(self, int fd, Py_ssize_t slot):
        if not 0 <= slot < MAX_SLOTS or fd < 0:
            raise IndexError(slot)
        if len(self._slots) <= 4 * fd:
            self._slots.extend(bytes(4 * (fd + 256) - len(self._slots)))
        (<int *> PyByteArray_AS_STRING(self._slots))[fd] = <int> slot + 1

    cpdef release(self, int fd):
        if 0 <= 4 * fd < len(self._slots):
            (<int *> PyByteArray_AS_STRING(self._slots))[fd] = 0

    cdef volatile u64 *_slot(self, int fd) noexcept:
        cdef int slot
        if fd < 0 or 4 * <Py_ssize_t> fd >= len(self._slots):
            return NULL
        slot = (<int *> PyByteArray_AS_STRING(self._slots))[fd]
        return _at(self._base, SLOTS + SLOT * (slot - 1)) if slot else NULL

    cdef Py_ssize_t _slot_number(self, int fd) noexcept:
        """Return slot + 1, or 0."""
        if fd < 0 or 4 * <Py_ssize_t> fd >= len(self._slots):
            return 0
        return (<int *> PyByteArray_AS_STRING(self._slots))[fd]

    cpdef begin(self, int kind, long long number, int fd=-1):
        cdef volatile u64 *slot = self._slot(fd)
        cdef char *base = self._base
        cdef int i
        _at(base, AT_OPEN)[0] = 0
        if kind != DATAGRAMS:
            for i in range(self._casts):
                (<volatile unsigned int *> &(<mmsghdr *> (base + CASTS + CAST * i)).msg_len)[0] = NOTHING
        _at(base, AT_SERIAL)[0] = _at(base, AT_SERIAL)[0] + 1
        _at(base, AT_KIND)[0] = kind
        _at(base, AT_NUMBER)[0] = <u64> number
        _at(base, AT_NOW)[0] = 0
        _at(base, AT_SEQ)[0] = slot[3] if slot != NULL else 0
        if self._attached is not None:
            self._attached.begin(_at(base, AT_SERIAL)[0])
        _at(base, AT_OPEN)[0] = 1

    cpdef finish(self):
        _at(self._base, AT_OPEN)[0] = 0
        if self._attached is not None:
            self._attached.commit()

    cpdef set_time(self, double now):
        (<volatile double *> (self._base + AT_NOW))[0] = now

    cpdef count(self, int fd, long long messages):
        cdef volatile u64 *slot = self._slot(fd)
        if slot == NULL:
            return
        _give(slot, _at(self._base, AT_SERIAL)[0], <u64> (self.counted(fd) + messages))

    cpdef long long counted(self, int fd):
        cdef volatile u64 *slot = self._slot(fd)
        if slot == NULL or slot[1] != _at(self._base, AT_SERIAL)[0]:
            return 0
        return <long long> slot[2]

    cpdef set_next_seq(self, int fd, u64 seq):
        cdef volatile u64 *slot = self._slot(fd)
        if slot != NULL:
            slot[3] = seq


cdef inline void _give(volatile u64 *slot, u64 serial, u64 got) noexcept:
    """Record that a client got ``got`` messages of an input."""
    if slot[1] != serial:
        slot[2] = 0
        slot[1] = serial
    slot[2] = got


cdef class Receiver(sockio.Receiver):
    """Receives batches of a segment into the shared memory."""

    def __init__(self, InflightState inflight, long long number, bytes label, int fd, Py_ssize_t largest, Py_ssize_t name_size):
        cdef Py_ssize_t start = layout.SEGMENT + layout.SEGMENT_SIZE * number
        cdef char *base = inflight._base + start
        layout.describe_segment(inflight.memory, number, label, largest, name_size)
        self._inflight = inflight
        self._number = number
        self._buffer = None
        self.names = memoryview(inflight.memory)[
            start + layout.SEGMENT_NAMES : start + layout.SEGMENT_NAMES + BATCH * name_size
        ]
        self._headers = base + <Py_ssize_t> layout.SEGMENT_HEADERS
        self._iovecs = base + <Py_ssize_t> layout.SEGMENT_VECTORS
        self._control = base + <Py_ssize_t> layout.SEGMENT_CONTROL
        self._data = base + <Py_ssize_t> layout.SEGMENT_DATA
        self._lay_out(fd, largest + 1, base + <Py_ssize_t> layout.SEGMENT_NAMES, name_size)

    cpdef list receive(self):
        cdef mmsghdr *headers = <mmsghdr *> self._headers
        cdef int i
        # The others hold none.
        for i in range(self._used):
            headers[i].msg_len = NOTHING
        self._inflight.begin(DATAGRAMS, self._number)
        try:
            return sockio.Receiver.receive(self)
        except OSError:
            self._inflight.finish()
            raise


cdef class Sender(sockio.Sender):
    """Sends packets to clients, recording those sent."""

    def __init__(self, InflightState inflight):
        cdef Py_ssize_t i
        self._inflight = inflight
        self._packets = []
        for i in range(MAX_PACKETS):
            self._lay_out(PACKETS + i * sizeof(mmsghdr), VECTORS + i * sizeof(iovec))
        self._lay_out(SINGLE_HEADER, SINGLE_VECTOR)

    cdef _lay_out(self, Py_ssize_t header_at, Py_ssize_t vector_at):
        cdef mmsghdr *header = <mmsghdr *> (self._inflight._base + header_at)
        memset(header, 0, sizeof(mmsghdr))
        header.msg_hdr.msg_iov = <iovec *> (self._inflight._base + vector_at)
        header.msg_hdr.msg_iovlen = 1
        header.msg_len = NOTHING

    cpdef load(self, list packets):
        if len(packets) > MAX_PACKETS:
            raise ValueError("more packets than the shared memory holds")
        cdef iovec *vectors = <iovec *> (self._inflight._base + VECTORS)
        cdef Py_ssize_t i
        cdef bytes packet
        for i in range(len(packets)):
            packet = packets[i]
            vectors[i].iov_base, vectors[i].iov_len = PyBytes_AS_STRING(packet), <size_t> PyBytes_GET_SIZE(packet)
        self._packets = packets

    cdef void _arm(self, Py_ssize_t slot, u64 weight, Py_ssize_t first, Py_ssize_t count, u64 length) noexcept:
        cdef char *base = self._inflight._base
        cdef mmsghdr *headers = <mmsghdr *> (base + (SINGLE_HEADER if first == SINGLE else PACKETS))
        cdef volatile u64 *words = _at(base, SLOTS + SLOT * (slot - 1))
        cdef Py_ssize_t i
        _at(base, AT_SENDING)[0] = 0
        for i in range(count):
            (<volatile unsigned int *> &headers[i].msg_len)[0] = NOTHING
        _at(base, AT_WEIGHT)[0] = weight
        _at(base, AT_BASE)[0] = words[2] if words[1] == _at(base, AT_SERIAL)[0] else 0
        _at(base, AT_FIRST)[0] = first
        _at(base, AT_COUNT)[0] = count
        _at(base, AT_LENGTH)[0] = length
        _at(base, AT_SENDING)[0] = slot

    cdef void _disarm(self, Py_ssize_t slot, u64 got) noexcept:
        """Record what a client got of this input."""
        cdef char *base = self._inflight._base
        cdef volatile u64 *words = _at(base, SLOTS + SLOT * (slot - 1))
        _give(words, _at(base, AT_SERIAL)[0], _at(base, AT_BASE)[0] + got)
        _at(base, AT_SENDING)[0] = 0

    cpdef Py_ssize_t send(self, int fd):
        cdef Py_ssize_t slot = self._inflight._slot_number(fd)
        cdef Py_ssize_t count = len(self._packets)
        cdef Py_ssize_t sent = 0
        cdef int now
        cdef mmsghdr *headers = <mmsghdr *> (self._inflight._base + PACKETS)
        if slot:
            self._arm(slot, 1, 0, count, 0)
        while sent < count:
            now = sendmmsg(fd, headers + sent, <unsigned int> (count - sent), MSG_DONTWAIT | MSG_NOSIGNAL)
            if now <= 0:
                break
            sent += now
        if slot:
            self._disarm(slot, <u64> sent)
        return sent

    cdef int _single(self, int fd, bytes packet) noexcept:
        cdef char *base = self._inflight._base
        cdef iovec *vector = <iovec *> (base + SINGLE_VECTOR)
        cdef mmsghdr *header = <mmsghdr *> (base + SINGLE_HEADER)
        vector.iov_base, vector.iov_len = PyBytes_AS_STRING(packet), <size_t> PyBytes_GET_SIZE(packet)
        return 0 if sendmmsg(fd, header, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 else errno

    cpdef int one(self, int fd, bytes packet, long weight=1) noexcept:
        cdef Py_ssize_t slot = self._inflight._slot_number(fd)
        cdef int failed
        if not slot:
            return sockio.Sender.one(self, fd, packet, weight)
        self._arm(slot, <u64> weight, SINGLE, 1, 0)
        failed = self._single(fd, packet)
        self._disarm(slot, 0 if failed else <u64> weight)
        return failed

    cpdef int waited(self, int fd, bytes packet, long weight, u64 length) noexcept:
        cdef Py_ssize_t slot = self._inflight._slot_number(fd)
        if not slot:
            return sockio.Sender.one(self, fd, packet, weight)
        self._arm(slot, <u64> weight, SINGLE, 1, length)
        # Stays armed until the next packet: the client's log may not have this one as sent yet.
        return self._single(fd, packet)


cdef class BroadcastSender(sockio.BroadcastSender):
    """Broadcasts to a segment, recording what was sent."""

    def __init__(self, InflightState inflight, int number, int fd, bytes address):
        cdef char *base
        cdef mmsghdr *header
        if not 0 <= number < layout.MAX_SEGMENTS or len(address) > layout.NAME:
            raise IndexError(number)
        base = inflight._base + CASTS + CAST * number
        header = <mmsghdr *> base
        self._inflight = inflight
        self._fd = fd
        self._header = header
        inflight._casts = max(inflight._casts, number + 1)
        memset(&header.msg_hdr, 0, sizeof(header.msg_hdr))
        memcpy(base + <Py_ssize_t> layout.CAST_NAME, PyBytes_AS_STRING(address), len(address))
        header.msg_hdr.msg_name = base + <Py_ssize_t> layout.CAST_NAME
        header.msg_hdr.msg_namelen = <unsigned int> len(address)
        header.msg_hdr.msg_iov = <iovec *> (base + <Py_ssize_t> layout.CAST_VECTOR)
        header.msg_hdr.msg_iovlen = 1

    cpdef int cast(self, bytes datagram) noexcept:
        cdef mmsghdr *header = <mmsghdr *> self._header
        cdef iovec *vector = header.msg_hdr.msg_iov
        vector.iov_base, vector.iov_len = PyBytes_AS_STRING(datagram), <size_t> PyBytes_GET_SIZE(datagram)
        return 0 if sendmmsg(self._fd, header, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 else errno


cdef class PacketReceiver(sockio.PacketReceiver):
    """Receives packets from clients into the shared memory."""

    def __init__(self, InflightState inflight):
        cdef char *base = inflight._base
        cdef mmsghdr *header = <mmsghdr *> (base + <Py_ssize_t> layout.INBOX)
        cdef iovec *vector = <iovec *> (header + 1)
        self._inflight = inflight
        self._header = header
        self._data = base + <Py_ssize_t> layout.INBOX_DATA
        self._room = layout.INBOX_SIZE
        memset(&header.msg_hdr, 0, sizeof(header.msg_hdr))
        vector.iov_base, vector.iov_len = self._data, <size_t> self._room
        header.msg_hdr.msg_iov = vector
        header.msg_hdr.msg_iovlen = 1

    cpdef Py_ssize_t receive(self, int fd, long long number) except -2:
        cdef mmsghdr *header = <mmsghdr *> self._header
        cdef int failed
        (<volatile unsigned int *> &header.msg_len)[0] = NOTHING
        self._inflight.begin(PACKET, number, fd)
        if recvmmsg(fd, header, 1, MSG_DONTWAIT, NULL) < 0:
            failed = errno
            self._inflight.finish()
            if failed == EAGAIN:
                return -1
            raise OSError(failed, os.strerror(failed))
        return header.msg_len
