"""Memory that was needed to start, and is not needed to run."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Final

_MADV_DONTNEED: Final = 4
_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def give_back() -> None:
    """Give the kernel back what was freed, and the pages of program text; those that are needed come back by
    themselves, from the file, one by one. Where the kernel or the C library will not, everything stays as it is."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(0)
    for start, size in _text():
        _libc.madvise(start, size, _MADV_DONTNEED)


def _text() -> Iterator[tuple[int, int]]:
    """Start and size of what is mapped from files to be executed, and so is never written to."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            lines = maps.readlines()
    except OSError:
        return
    for line in lines:
        span, rights, _, _, inode, *_ = line.split()
        if rights == "r-xp" and inode != "0":
            start, end = (int(part, 16) for part in span.split("-"))
            yield start, end - start
