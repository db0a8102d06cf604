cimport cython


@cython.locals(head=bytes, nul=bytes, payload=bytes, verb=bytes, space=bytes, key=bytes)
cpdef tuple read(bytes packet)
cpdef bytes batch(list messages)
cpdef list read_batch(bytes packet)
