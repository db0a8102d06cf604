cimport cython
from bccnd.core.dedup cimport Sources
from bccnd.core.roster cimport Source
from bccnd.leaf cimport scan
from bccnd.leaf.notes cimport Notes

cdef int RECORD
cdef int _BEAT
cdef int _COLON


cdef class Annals:
    cdef public unsigned long long serial
    cdef readonly Py_ssize_t size
    cdef readonly bint complete
    cdef readonly str failed
    cdef Sources _sources
    cdef object _nameless
    cdef object _liveness
    cdef Notes _notes
    cdef double _now
    cdef object _write
    cdef Py_ssize_t _snapshot
    cdef object _walk

    cpdef datagram(self, bytes raw, Py_ssize_t start, Py_ssize_t end, bytes src, unsigned long long seq)
    cpdef flush(self, double now)
    cdef _flush(self, unsigned long long serial, double now)
    cdef _put_out(self, bytes record)


cdef class _Reader:
    cdef readonly Py_ssize_t records
    cdef readonly Py_ssize_t datagrams
    cdef public bint complete
    cdef readonly list doubts
    cdef Sources _sources
    cdef object _nameless
    cdef object _liveness
    cdef double _now
    cdef unsigned long long _skip
    cdef Py_ssize_t _files
    cdef double _latest
    cdef dict _own

    @cython.locals(kind=int, size=Py_ssize_t, at=Py_ssize_t, serial=ulonglong, when=double)
    cdef _record(self, bytes data, Py_ssize_t start, Py_ssize_t end, dict strange)
    @cython.locals(colon=Py_ssize_t, found=longlong, source=Source, src=bytes)
    cdef _datagram(self, bytes data, Py_ssize_t start, Py_ssize_t end, double when)
    @cython.locals(source=Source)
    cdef _source(self, bytes what, double when)
