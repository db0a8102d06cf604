cimport cython
from bccnd.core.wire cimport bccn1
from bccnd.core.tracking.local_identities cimport LocalIdentity
from bccnd.core.trust.integrity cimport IntegrityChecker


@cython.final
cdef class Egress:
    cdef public IntegrityChecker checker
    cdef object _sources
    cdef Py_ssize_t _ceiling
    cdef bint _perl_safe
    cdef readonly dict _open
    cdef object _ended
    cdef object _first_seq
    cdef object _reserve
    cdef object _reserved

    @cython.locals(own=LocalIdentity)
    cpdef open(self, bytes identity)
    @cython.locals(own=LocalIdentity)
    cpdef close(self, bytes identity, double now)
    @cython.locals(own=LocalIdentity)
    cpdef list runs(self)
    @cython.locals(own=LocalIdentity, body=bytes, datagram=bytes)
    cpdef tuple emit(self, bytes identity, bytes chan, bytes payload, object clock_us, bint checked=*)
    cdef _reserve_from(self, object seq)
