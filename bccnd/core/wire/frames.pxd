cimport cython
from bccnd.native.buffers cimport scan


@cython.locals(space=Py_ssize_t, end=Py_ssize_t, verb=bytes)
cpdef tuple read(bytes packet)
cpdef bytes batch(list messages)
cpdef list read_batch(bytes packet)
