cimport cython
from bccnd.core.wire cimport bccn1
from bccnd.core.tracking.local_identities cimport LocalIdentity
from bccnd.core.trust.integrity cimport IntegrityChecker


@cython.final
cdef class _SeqCounter:
    cdef int users
    cdef bint started
    cdef object run
    cdef LocalIdentity own

    cdef object next(self, object clock_us)
    cdef advance(self, object seq, object first=*)


@cython.final
cdef class Egress:
    cdef public IntegrityChecker checker
    cdef object _sources
    cdef Py_ssize_t _ceiling
    cdef bint _perl_safe
    cdef readonly dict _counters
    cdef object _ended

    @cython.locals(counter=_SeqCounter)
    cpdef open(self, bytes identity)
    @cython.locals(counter=_SeqCounter)
    cpdef close(self, bytes identity, double now)
    @cython.locals(counter=_SeqCounter)
    cpdef next_seq(self, bytes identity)
    @cython.locals(counter=_SeqCounter)
    cpdef fix_seq(self, bytes identity, object clock_us)
    @cython.locals(counter=_SeqCounter)
    cpdef resume(self, bytes identity, object seq)
    @cython.locals(counter=_SeqCounter)
    cpdef list runs(self)
    @cython.locals(counter=_SeqCounter, body=bytes, datagram=bytes)
    cpdef tuple emit(self, bytes identity, bytes chan, bytes payload, object clock_us, bint checked=*)
