cimport cython

cdef extern from "openssl/sha.h" nogil:
    ctypedef struct SHA256_CTX:
        unsigned int[8] h


@cython.final
cdef class Hmac8:
    cdef SHA256_CTX _inner
    cdef SHA256_CTX _outer

    cdef void _compute(self, const char *body, Py_ssize_t size, char *digits) noexcept
    cpdef bytes sum(self, bytes body)
    cpdef bint verify_at(self, bytes raw, Py_ssize_t start, Py_ssize_t end) noexcept
