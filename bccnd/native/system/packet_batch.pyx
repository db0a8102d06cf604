"""Receives packets from the daemon, many with one system call (recvmmsg)."""

import os

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.errno cimport EINTR, errno
from posix.uio cimport iovec

from bccnd.native.system.sockio cimport MSG_DONTWAIT, mmsghdr, recvmmsg

cdef extern from "<sys/socket.h>" nogil:
    enum:
        MSG_WAITFORONE


cdef class PacketBatch:
    """Takes up to ``count`` packets of at most ``size`` bytes at once."""

    def __cinit__(self, Py_ssize_t size, int count):
        cdef mmsghdr *headers
        cdef iovec *vectors
        cdef char *data
        cdef int i
        # The kernel gives memory to the pages that packets reach, and to no others.
        self._memory = PyMem_RawCalloc(<size_t> count, sizeof(mmsghdr) + sizeof(iovec) + <size_t> size)
        if self._memory is NULL:
            raise MemoryError
        headers = <mmsghdr *> self._memory
        vectors = <iovec *> (headers + count)
        data = <char *> (vectors + count)
        for i in range(count):
            vectors[i].iov_base, vectors[i].iov_len = data + i * size, <size_t> size
            headers[i].msg_hdr.msg_iov, headers[i].msg_hdr.msg_iovlen = vectors + i, 1
        self._count = count

    def __dealloc__(self):
        PyMem_RawFree(self._memory)

    cpdef list receive(self, int fd, int most, bint wait):
        """Return the packets that are there, up to ``most``, an empty one last where the other end has closed; with
        ``wait``, wait for the first. Returns none if a signal came first. Raises OSError; BlockingIOError where there
        are none."""
        cdef mmsghdr *headers = <mmsghdr *> self._memory
        cdef iovec *vectors = <iovec *> (headers + self._count)
        cdef list packets = []
        cdef int i
        cdef int count
        most = min(most, self._count)
        if wait:
            with nogil:
                count = recvmmsg(fd, headers, <unsigned int> most, MSG_WAITFORONE, NULL)
        else:
            count = recvmmsg(fd, headers, <unsigned int> most, MSG_DONTWAIT, NULL)
        if count < 0:
            if errno != EINTR:
                raise OSError(errno, os.strerror(errno))
            PyErr_CheckSignals()
        for i in range(count):
            packets.append(PyBytes_FromStringAndSize(<char *> vectors[i].iov_base, headers[i].msg_len))
            if not headers[i].msg_len:  # the end is there again for each that is asked for
                break
        return packets
