cimport cython
from bccnd.core.matching.receivers cimport Receivers

cdef Receivers NO_RECEIVERS


@cython.final
cdef class Deliveries:
    cdef readonly Py_ssize_t count
    cdef readonly list receivers
    cdef readonly list frames

    cpdef put(self, Receivers receivers, bytes frame)
    @cython.locals(number=Py_ssize_t)
    cpdef clear(self)
