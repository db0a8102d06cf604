cpdef Py_ssize_t find(bytes raw, int byte, Py_ssize_t start) noexcept
cpdef long long parse_uint(bytes raw, Py_ssize_t start, Py_ssize_t end) noexcept
