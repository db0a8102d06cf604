cimport cython
from bccnd.native cimport scan

cdef Py_ssize_t LAST_SLOT


@cython.locals(start=Py_ssize_t, size=Py_ssize_t, number=Py_ssize_t, message=bytes, found=list)
cpdef list portions(list messages, Py_ssize_t limit=*)


cdef class Group:
    cdef Py_ssize_t count
    cdef tuple receivers
    cdef list messages


cdef class _Placement:
    cdef tuple receivers
    cdef list groups
    cdef long version


@cython.final
cdef class FanoutGroups:
    cdef dict _placements
    cdef list _latest
    cdef Py_ssize_t _remembered
    cdef dict _groups
    cdef list _filled
    cdef long _version
    cdef long _taken

    @cython.locals(slot=Py_ssize_t, placement=_Placement, group=Group)
    cpdef put(self, tuple receivers, bytes message)
    @cython.locals(filled=list, taken=list, group=Group)
    cpdef list take(self)
    @cython.locals(size=Py_ssize_t)
    cdef _Placement _remember(self, tuple receivers)
    cdef _forget_placements(self)
    cpdef reset(self)
    @cython.locals(found=dict, group=Group)
    cdef _find(self, _Placement placement)
    @cython.locals(own=Group)
    cdef Group _split(self, Group group, list receivers)
