cimport cython
from bccnd.core.trust.integrity_algorithms cimport Algorithm

cdef int _BRACKET


@cython.final
cdef class IntegrityChecker:
    cdef tuple _verifiers
    cdef readonly Algorithm signer
    cdef Algorithm _usual
    cdef tuple _prefixes
    cdef Py_ssize_t _sum_size
    cdef bint _required
    cdef bint _accept_unverifiable
    cdef dict _other_keys

    @cython.locals(start=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t, prefix=bytes)
    cpdef Py_ssize_t verify(self, bytes raw, bint counted) except -1
    cpdef count_own(self, int count=*)
    cpdef bytes sign(self, bytes body)
