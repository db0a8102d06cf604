from bccnd.native.buffers.hmac8 cimport Hmac8


cdef class Algorithm:
    cdef public unsigned long long verified
    cdef public str fingerprint
    cpdef bytes sum(self, bytes body)
    cdef bint verify_at(self, bytes raw, Py_ssize_t start, Py_ssize_t end) except -1


cdef class Unsigned(Algorithm):
    pass


cdef class Hmac(Algorithm):
    cdef Hmac8 _hmac


cdef class Crc32(Algorithm):
    pass
