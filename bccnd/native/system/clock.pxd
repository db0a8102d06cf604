from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


cdef inline double monotonic() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <double> now.tv_sec + <double> now.tv_nsec * 1e-9


cdef inline long long time_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <long long> now.tv_sec * 1_000_000_000 + now.tv_nsec
