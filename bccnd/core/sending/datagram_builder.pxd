cimport cython
from bccnd.core.wire cimport bccn1
from bccnd.native.buffers.datagram cimport build
from bccnd.core.tracking.local_identities cimport LocalIdentity
from bccnd.core.trust.integrity cimport IntegrityChecker
from bccnd.core.trust.integrity_algorithms cimport Algorithm

cdef Py_ssize_t KEY


@cython.final
cdef class DatagramBuilder:
    cdef public IntegrityChecker checker
    cdef readonly unsigned long long seq
    cdef object _sources
    cdef Py_ssize_t _ceiling
    cdef bint _perl_safe
    cdef readonly dict _open
    cdef object _ended
    cdef unsigned long long _first_seq
    cdef object _reserve
    cdef unsigned long long _reserved

    @cython.locals(own=LocalIdentity)
    cpdef open(self, bytes identity)
    @cython.locals(own=LocalIdentity)
    cpdef close(self, bytes identity, double now)
    @cython.locals(own=LocalIdentity)
    cpdef list runs(self)
    @cython.locals(own=LocalIdentity, datagram=bytes, seq="unsigned long long")
    cpdef bytes build(self, bytes identity, bytes frame, unsigned long long clock_us, bint checked=*)
    cdef bytes _build(self, bytes identity, unsigned long long seq, bytes frame)
    cdef _check(self, bytes chan, bint checked)
    cdef _reserve_from(self, unsigned long long seq)
