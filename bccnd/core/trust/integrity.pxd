cimport cython
from bccnd.core.trust.integrity_algorithms cimport Algorithm
from bccnd.native.buffers cimport scan

cdef int _BRACKET


@cython.final
cdef class IntegrityChecker:
    cdef tuple _verifiers
    cdef Algorithm _signer
    cdef Algorithm _usual
    cdef tuple _prefixes
    cdef bint _required
    cdef bint _accept_unverifiable
    cdef dict _other_keys

    @cython.locals(end=Py_ssize_t, size=Py_ssize_t, prefix=bytes)
    cpdef Py_ssize_t verify(self, bytes raw) except -1
    cpdef bytes sign(self, bytes body)
