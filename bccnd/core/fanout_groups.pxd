cimport cython
from bccnd.native cimport scan


cdef class Run:
    cdef tuple receivers
    cdef list messages


cdef class _Place:
    cdef tuple receivers
    cdef list runs
    cdef long stand


cdef class FanoutGroups:
    cdef dict _places
    cdef list _latest
    cdef Py_ssize_t _remembered
    cdef dict _runs
    cdef list _filled
    cdef long _stand
    cdef long _taken

    @cython.locals(slot=Py_ssize_t, place=_Place, run=Run)
    cpdef put(self, tuple receivers, bytes message)
    @cython.locals(filled=list, taken=list, run=Run)
    cpdef list take(self)
    cdef _Place _remember(self, tuple receivers)
    cdef _forget_places(self)
    cdef _forget(self)
    @cython.locals(found=dict, run=Run)
    cdef _find(self, _Place place)
    @cython.locals(own=Run)
    cdef Run _part(self, Run run, list receivers)
