cdef class Algorithm:
    cdef public unsigned long long verified
    cdef public str fingerprint
    cpdef bytes sum(self, bytes body)
    cpdef bytes build(self, bytes src, unsigned long long seq, bytes frame)
    cdef bint verify_at(self, bytes raw, Py_ssize_t start, Py_ssize_t end) except -1


cdef class Unsigned(Algorithm):
    pass


cdef class Hmac(Algorithm):
    cdef bytes _key


cdef class Crc32(Algorithm):
    pass
