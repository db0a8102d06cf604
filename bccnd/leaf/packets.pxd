cpdef int send(int fd, bytes packet) noexcept


cdef class Receiver:
    cdef int _fd
    cdef Py_ssize_t _size
    cdef char *_data
    cdef void *_headers
    cdef void *_iovecs
    cdef char *_control
    cdef bytearray _room
    cdef readonly object names

    cpdef list receive(self)
    cpdef long long stamp_ns(self)


cdef class Sender:
    cdef bytearray _room
    cdef list _packets

    cpdef load(self, list packets)
    cpdef Py_ssize_t send(self, int fd)
