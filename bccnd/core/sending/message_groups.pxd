cimport cython
from bccnd.core.matching.receivers cimport Group, Part


@cython.locals(start=Py_ssize_t, size=Py_ssize_t, number=Py_ssize_t, message=bytes, found=list)
cpdef list portions(list messages, Py_ssize_t limit=*)


@cython.final
cdef class MessageGroups:
    cdef object _parts
    cdef dict _groups
    cdef list _filled
    cdef long _version
    cdef long _taken

    @cython.locals(group=Group)
    cpdef put(self, Part part, bytes message)
    @cython.locals(filled=list, taken=list, group=Group)
    cpdef list take(self)
    @cython.locals(part=Part)
    cpdef reset(self)
    @cython.locals(found=dict, groups=list, group=Group)
    cdef _find(self, Part part)
    @cython.locals(own=Group)
    cdef Group _split(self, Group group, list receivers)
