"""Receives and sends packets, many with one system call (recvmmsg, sendmmsg).

No call blocks. Buffers are allocated once; received datagrams are copies.
"""

import os

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from libc.errno cimport EAGAIN, errno
from libc.string cimport memcpy, memset

cdef enum:
    # datagrams per system call: with 64 the cost of the call is negligible
    COUNT = 64
    # bytes for control data: a header (16 bytes on 64 bit) and struct timespec
    CONTROL = 64
    # stands for the length of a datagram of this host's own
    OWN = 0x7FFFFFFF
BATCH = COUNT


cdef class Receiver:
    """recvmmsg(2) on one non-blocking socket.

    ``names`` holds the senders of the last batch, ``name_size`` bytes of sockaddr each. Each datagram gets the kernel's
    timestamp, if the socket has SO_TIMESTAMPNS.
    """

    def __init__(self, int fd, Py_ssize_t largest, Py_ssize_t name_size):
        # one byte more than the ceiling, to detect longer ones
        cdef Py_ssize_t size = largest + 1
        cdef Py_ssize_t i
        cdef iovec *vectors
        cdef msghdr *header
        room = bytearray(COUNT * name_size)
        self._names = PyByteArray_AS_STRING(room)
        # one buffer, never resized, so that addresses stay valid
        self._buffer = bytearray(COUNT * (<Py_ssize_t> (sizeof(mmsghdr) + sizeof(iovec)) + CONTROL + size))
        self._headers = <mmsghdr *> PyByteArray_AS_STRING(self._buffer)
        vectors = <iovec *> (self._headers + COUNT)
        self._control = <char *> (vectors + COUNT)
        self._data = self._control + COUNT * CONTROL
        for i in range(COUNT):
            header = &self._headers[i].msg_hdr
            vectors[i].iov_base, vectors[i].iov_len = self._data + i * size, <size_t> size
            header.msg_name, header.msg_namelen = self._names + i * name_size, <socklen_t> name_size
            header.msg_iov, header.msg_iovlen = vectors + i, 1
            header.msg_control = self._control + i * CONTROL
        self.names = memoryview(room)
        self._fd = fd
        self._size = size
        self._name_size = name_size
        self._used = COUNT
        self.own = 0

    cpdef list receive(self, SentDatagrams sent=None, double now=0.0):
        """Return the available datagrams, at most BATCH; ``names`` and `stamp_ns` then refer to them. Raises OSError, or
        BlockingIOError if there are none.

        Those that are in ``sent`` by ``now`` are only counted: ``own`` is how many.
        """
        cdef mmsghdr *headers = self._headers
        cdef Py_ssize_t i
        cdef Py_ssize_t kept = 0
        cdef int count
        cdef list datagrams
        cdef bytes datagram
        # The kernel has changed those of the last batch.
        for i in range(self._used):
            headers[i].msg_hdr.msg_controllen = CONTROL
        count = recvmmsg(self._fd, headers, COUNT, MSG_DONTWAIT, NULL)
        if count < 0:
            raise OSError(errno, os.strerror(errno))
        self._used = count
        self.own = 0
        if sent is not None and sent._count:
            for i in range(count):
                if sent.take_text(self._data + i * self._size, headers[i].msg_len, now):
                    headers[i].msg_len = OWN
                    self.own += 1
        datagrams = PyList_New(count - self.own)
        for i in range(count):
            if headers[i].msg_len == OWN:
                continue
            datagram = PyBytes_FromStringAndSize(self._data + i * self._size, headers[i].msg_len)
            Py_INCREF(datagram)
            PyList_SET_ITEM(datagrams, kept, datagram)
            if kept < i:
                memcpy(self._names + kept * self._name_size, self._names + i * self._name_size, self._name_size)
                memcpy(self._control + kept * CONTROL, self._control + i * CONTROL, CONTROL)
                headers[kept].msg_hdr.msg_controllen = headers[i].msg_hdr.msg_controllen
            kept += 1
        return datagrams

    cpdef long long stamp_ns(self, Py_ssize_t number=0) except -1:
        """Return the kernel's timestamp of a datagram of the batch (wall clock), or 0."""
        cdef timespec stamp
        if not 0 <= number < self._used:
            raise IndexError(number)
        if not self._headers[number].msg_hdr.msg_controllen:
            return 0
        memcpy(&stamp, CMSG_DATA(<cmsghdr *> (self._control + number * CONTROL)), sizeof(timespec))
        return <long long> stamp.tv_sec * 1_000_000_000 + stamp.tv_nsec


cdef class Sender:
    """Sends packets to connected, non-blocking sockets: one, or a list that is prepared once for many sockets."""

    def __init__(self):
        self._buffer = bytearray()
        self._packets = []

    cpdef load(self, list packets):
        """Set the packets for `send`."""
        cdef Py_ssize_t count = len(packets)
        cdef Py_ssize_t i
        cdef bytes packet
        cdef mmsghdr *headers
        cdef iovec *vectors
        cdef Py_ssize_t size = count * <Py_ssize_t> (sizeof(mmsghdr) + sizeof(iovec))
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        headers = <mmsghdr *> PyByteArray_AS_STRING(self._buffer)
        vectors = <iovec *> (headers + count)
        memset(headers, 0, count * sizeof(mmsghdr))
        for i in range(count):
            packet = packets[i]
            vectors[i].iov_base, vectors[i].iov_len = PyBytes_AS_STRING(packet), <size_t> PyBytes_GET_SIZE(packet)
            headers[i].msg_hdr.msg_iov, headers[i].msg_hdr.msg_iovlen = vectors + i, 1
        # keeps the buffers alive
        self._packets = packets

    cpdef Py_ssize_t send(self, int fd):
        """Send the loaded packets; return how many were sent before the first failure."""
        cdef Py_ssize_t count = len(self._packets)
        cdef Py_ssize_t sent = 0
        cdef int now
        cdef mmsghdr *headers = <mmsghdr *> PyByteArray_AS_STRING(self._buffer)
        # the kernel takes 1,024 at a time
        while sent < count:
            now = sendmmsg(fd, headers + sent, <unsigned int> (count - sent), MSG_DONTWAIT | MSG_NOSIGNAL)
            if now <= 0:
                break
            sent += now
        return sent

    cpdef int send_one(self, int fd, bytes packet) noexcept:
        """Send a packet; return 0 or the errno."""
        if c_send(fd, PyBytes_AS_STRING(packet), <size_t> PyBytes_GET_SIZE(packet), MSG_DONTWAIT | MSG_NOSIGNAL) < 0:
            return errno
        return 0


cpdef int send_to(int fd, bytes datagram, bytes address) noexcept:
    """Send a datagram to an address, packed as the kernel takes it (sockaddr); return 0 or the errno."""
    if c_sendto(
        fd, PyBytes_AS_STRING(datagram), <size_t> PyBytes_GET_SIZE(datagram), MSG_DONTWAIT | MSG_NOSIGNAL,
        <const sockaddr *> PyBytes_AS_STRING(address), <socklen_t> PyBytes_GET_SIZE(address)
    ) < 0:
        return errno
    return 0


cdef class PacketReceiver:
    """Receives packets from clients, one at a time."""

    def __init__(self, Py_ssize_t largest):
        # one byte more than the ceiling, to detect longer ones
        self._buffer = bytearray(largest + 1)
        self._data = PyByteArray_AS_STRING(self._buffer)
        self._room = largest + 1

    cpdef bytes receive(self, int fd):
        """Return the next packet of a client, empty also at the end, or None if there is none. Raises OSError."""
        cdef ssize_t size = c_recv(fd, self._data, <size_t> self._room, MSG_DONTWAIT)
        if size < 0:
            if errno == EAGAIN:
                return None
            raise OSError(errno, os.strerror(errno))
        return PyBytes_FromStringAndSize(self._data, size)
