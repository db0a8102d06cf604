cpdef double monotonic() noexcept
cpdef long long wall_ns() noexcept
