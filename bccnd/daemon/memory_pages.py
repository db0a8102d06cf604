"""Gives back the memory that only the start has needed; docs/architecture.md has how much that is."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from mmap import PAGESIZE
from typing import Final, NamedTuple

_MADV_DONTNEED: Final = 4
#: mappings looked at in one step
_MAPPINGS: Final = 32
#: flags of a page in /proc/self/pagemap, in the highest of its 8 bytes
_PRESENT: Final = 0x80
_SWAPPED: Final = 0x40
_OF_FILE: Final = 0x20
_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class _Mapping(NamedTuple):
    """Addresses of this process's memory, their access rights, and the file that they are mapped from."""

    start: int
    end: int
    rights: str
    #: 0 without a file
    inode: int


def tidy() -> Iterator[None]:
    """Release freed memory and pages of program files.

    Yields between steps, which take up to some milliseconds. Pages that are still needed are read again from their
    file. What the kernel or the C library does not support does not happen.
    """
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(0)
    for number, mapping in enumerate(_mappings()):
        if number % _MAPPINGS == 0:
            yield
        if mapping.rights in ("r-xp", "r--p") and mapping.inode and _is_as_in_file(mapping):
            _libc.madvise(mapping.start, mapping.end - mapping.start, _MADV_DONTNEED)


def _is_as_in_file(mapping: _Mapping) -> bool:
    """Whether no page of a mapping was changed, as the linker does with addresses in it."""
    kinds = set(_page_flags(mapping.start, mapping.end - mapping.start))
    return bool(kinds) and all(not flags & (_PRESENT | _SWAPPED) or flags & _OF_FILE for flags in kinds)


def _page_flags(start: int, size: int) -> bytes:
    """Return the flags of each page of an area; nothing where the kernel does not show them."""
    with suppress(OSError), open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        pagemap.seek(start // PAGESIZE * 8)
        return pagemap.read(size // PAGESIZE * 8)[7::8]
    return b""


def _mappings() -> Iterator[_Mapping]:
    """Read the mappings of this process; none where the kernel does not show them."""
    with suppress(OSError):
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            lines = maps.readlines()
        for line in lines:
            span, rights, _, _, inode, *_ = line.split()
            start, end = (int(part, 16) for part in span.split("-"))
            yield _Mapping(start, end, rights, int(inode))
