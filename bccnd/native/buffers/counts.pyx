"""Counters of 64 bits, found by number, without Python objects."""

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free


@cython.final
cdef class Counts:
    """So many counters, from zero."""

    def __cinit__(self, Py_ssize_t size):
        self._counts = <unsigned long long *> PyMem_Calloc(<size_t> max(size, 0), sizeof(unsigned long long))
        if self._counts == NULL:
            raise MemoryError
        self._size = size

    def __dealloc__(self):
        PyMem_Free(self._counts)

    cpdef int add(self, Py_ssize_t number, unsigned long long amount=1) except -1:
        """Raises IndexError for a number that there is not."""
        if not 0 <= number < self._size:
            raise IndexError(number)
        self._counts[number] += amount
        return 0

    cpdef list values(self):
        """Return a copy of all."""
        return [self._counts[number] for number in range(self._size)]
