"""clock.py in C terms."""

COMPILED = True

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    enum:
        CLOCK_MONOTONIC
        CLOCK_REALTIME
    int clock_gettime(int clock, timespec *now)


cpdef double monotonic() noexcept:
    """Seconds since some point in the past."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <double> now.tv_sec + <double> now.tv_nsec * 1e-9


cpdef long long wall_ns() noexcept:
    """Nanoseconds since 1970."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <long long> now.tv_sec * 1_000_000_000 + now.tv_nsec
