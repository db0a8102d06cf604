from bccnd.native.buffers.reused_bytes cimport ReusedBytes

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec

cdef extern from "<sys/socket.h>" nogil:
    enum:
        MSG_DONTWAIT
        MSG_NOSIGNAL
    ctypedef unsigned int socklen_t
    struct sockaddr:
        pass
    struct iovec:
        void *iov_base
        size_t iov_len
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
    cdef char *_data
    cdef void *_headers
    cdef void *_iovecs
    cdef char *_control
    cdef bytearray _buffer
    # headers that the last batch has used
    cdef int _used
    # the last batch, if it was one datagram
    cdef list _single
    cdef ReusedBytes _spare
    cdef readonly object names

    cdef _lay_out(self, int fd, Py_ssize_t size, char *names, Py_ssize_t name_size)
    cpdef list receive(self)
    cpdef long long stamp_ns(self, Py_ssize_t number=*) except -1


cdef class Sender:
    cdef bytearray _buffer
    cdef list _packets

    cpdef load(self, list packets)
    cpdef Py_ssize_t send(self, int fd)
    cpdef int send_one(self, int fd, bytes packet) noexcept


cdef class BroadcastSender:
    cdef int _fd
    cdef bytes _packed

    cpdef int broadcast(self, bytes datagram) noexcept


cdef class PacketReceiver:
    cdef bytearray _buffer
    cdef char *_data
    cdef Py_ssize_t _room

    cpdef Py_ssize_t receive(self, int fd) except -2
    cpdef bytes packet(self, Py_ssize_t size)
