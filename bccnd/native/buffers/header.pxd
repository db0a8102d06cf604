cdef class Header:
    cdef readonly Py_ssize_t src
    cdef readonly Py_ssize_t src_end
    cdef readonly Py_ssize_t chan
    cdef readonly Py_ssize_t bar
    cdef readonly unsigned long long seq
    cdef readonly bint seq_valid

    cdef bint _read_seq(self, const char *at, const char *end) noexcept
    cpdef bytes src_of(self, bytes raw)
    cpdef bint parse(self, bytes raw, Py_ssize_t at) noexcept
