cpdef Py_ssize_t find(bytes raw, int byte, Py_ssize_t start) noexcept
