cimport cython
from bccnd.core.dedup cimport TrackerTable
from bccnd.core.lru cimport Source
from bccnd.native cimport scan

cdef int DIRECT
cdef int LINKED
cdef int HEARTBEAT
cdef int _COLON
cdef double _INFINITY


cdef class _Reader:
    cdef readonly Py_ssize_t records
    cdef readonly Py_ssize_t datagrams
    cdef public bint complete
    cdef readonly list problems
    cdef TrackerTable _sources
    cdef object _anonymous
    cdef object _liveness
    cdef double _now
    cdef unsigned long long _skip
    cdef Py_ssize_t _files
    cdef double _latest
    cdef dict _own

    @cython.locals(kind=int, size=Py_ssize_t, at=Py_ssize_t, serial=ulonglong, when=double)
    cdef _apply_record(self, bytes data, Py_ssize_t start, Py_ssize_t end, bint from_link, dict unknown)
    @cython.locals(colon=Py_ssize_t, found=longlong, source=Source, src=bytes)
    cdef _apply_datagram(self, bytes data, Py_ssize_t start, Py_ssize_t end, double when, bint from_link)
    @cython.locals(
        source=Source, src=bytes, heard=double, rank=double, beat=double, gap=double, interval=double, latest=double,
        src_size=Py_ssize_t, bits=Py_ssize_t, end=Py_ssize_t, state=int, epoch=int,
    )
    cdef _apply_tracker(self, bytes body, double when)
