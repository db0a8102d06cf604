from bccnd.native.buffers.hmac8 cimport Hmac8


cpdef Py_ssize_t find_nul(bytes packet) noexcept
cpdef bytes build(bytes src, unsigned long long seq, bytes frame, Hmac8 key=*)
