cdef class MessageReader:
    cdef type _kind
    cdef object _channel
    cdef dict _channels

    cpdef object read(self, bytes frame)
    cdef tuple _channel_of(self, bytes key)
