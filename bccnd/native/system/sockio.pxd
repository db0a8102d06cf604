from bccnd.native.buffers.sent_datagrams cimport SentDatagrams
from posix.time cimport timespec
from posix.uio cimport iovec

cdef extern from "<sys/socket.h>" nogil:
    enum:
        MSG_DONTWAIT
        MSG_NOSIGNAL
    ctypedef unsigned int socklen_t
    struct sockaddr:
        pass
    struct msghdr:
        void *msg_name
        socklen_t msg_namelen
        iovec *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
        int msg_flags
    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    struct cmsghdr:
        pass
    unsigned char *CMSG_DATA(cmsghdr *cmsg)
    ssize_t c_send "send"(int fd, const void *packet, size_t size, int flags)
    ssize_t c_sendto "sendto"(
        int fd, const void *packet, size_t size, int flags, const sockaddr *address, socklen_t length
    )
    ssize_t c_recv "recv"(int fd, void *room, size_t size, int flags)
    int sendmmsg(int fd, mmsghdr *headers, unsigned int count, int flags)
    int recvmmsg(int fd, mmsghdr *headers, unsigned int count, int flags, timespec *timeout)


cdef class Receiver:
    cdef int _fd
    cdef Py_ssize_t _size
    cdef Py_ssize_t _name_size
    # everything below, in one place
    cdef bytearray _buffer
    cdef mmsghdr *_headers
    cdef char *_control
    cdef char *_names
    cdef char *_data
    # headers that the last batch has used
    cdef int _used
    cdef readonly object names
    cdef readonly int own

    cpdef list receive(self, SentDatagrams sent=*, double now=*)
    cpdef long long stamp_ns(self, Py_ssize_t number=*) except -1


cdef class Sender:
    cdef bytearray _buffer
    cdef list _packets

    cpdef load(self, list packets)
    cpdef Py_ssize_t send(self, int fd)
    cpdef int send_one(self, int fd, bytes packet) noexcept


cpdef int send_to(int fd, bytes datagram, bytes address) noexcept


cdef class PacketReceiver:
    cdef bytearray _buffer
    cdef char *_data
    cdef Py_ssize_t _room

    cpdef bytes receive(self, int fd)
