cpdef Py_ssize_t find(bytes raw, int byte, Py_ssize_t start) noexcept
cpdef long long number(bytes raw, Py_ssize_t start, Py_ssize_t end) noexcept
cpdef bytes cut(bytes raw, Py_ssize_t start, Py_ssize_t end)
cpdef bytes joined(bytes head, bytes raw, Py_ssize_t start)
cpdef Py_ssize_t address(object thing) noexcept
