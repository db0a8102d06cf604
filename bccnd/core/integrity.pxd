cimport cython
from bccnd.native cimport scan
from bccnd.native.hmac8 cimport Hmac8

cdef int _BRACKET


cdef class Algorithm:
    cdef public unsigned long long verified
    cdef public str fingerprint
    cpdef bytes sum(self, bytes body)
    cpdef bint verify_at(self, bytes raw, Py_ssize_t start, Py_ssize_t end) except -1


cdef class Hmac(Algorithm):
    cdef Hmac8 _keyed


cdef class Crc32(Algorithm):
    pass


cdef class IntegrityChecker:
    cdef tuple _verifiers
    cdef Algorithm _signer
    cdef Algorithm _first
    cdef tuple _starts
    cdef bint _required
    cdef bint _accept_unverifiable
    cdef dict _signed

    @cython.locals(end=Py_ssize_t, size=Py_ssize_t, start=bytes)
    cpdef Py_ssize_t verify(self, bytes raw) except -1
