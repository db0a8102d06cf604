cimport cython
from bccnd.core.wire cimport bccn1
from bccnd.native.buffers.datagram cimport build
from bccnd.core.tracking.local_identities cimport LocalIdentity
from bccnd.core.trust.integrity cimport IntegrityChecker
from bccnd.core.trust.integrity_algorithms cimport Algorithm

cdef Py_ssize_t KEY


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
    @cython.locals(own=LocalIdentity, datagram=bytes)
    cpdef tuple emit(self, bytes identity, bytes frame, long long clock_us, bint checked=*)
    cdef bytes _build(self, bytes identity, object seq, bytes frame)
    cdef _check(self, bytes chan, bint checked)
    cdef _reserve_from(self, object seq)
