"""Orders the daemon's memory after the start: gives back what only the start has needed, and joins what stays.

What stays lies in many small pages, and a message out of silence touches some hundred of them, each of which the
processor has to look up. Only pages that are nearly full are joined, so that this takes next to no memory.
docs/architecture.md has what both save.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from mmap import PAGESIZE
from typing import Final, NamedTuple

_MADV_DONTNEED: Final = 4
_MADV_COLLAPSE: Final = 25
#: bytes of a large page on x86-64 and ARM
_LARGE: Final = 2 << 20
#: of a large page, the bytes that are in use at least
_USED: Final = _LARGE * 7 // 8
#: mappings looked at in one step
_MAPPINGS: Final = 32
#: what the machine's operator has decided about large pages: ``always``, ``madvise`` or ``[never]``
_POLICY: Final = "/sys/kernel/mm/transparent_hugepage/enabled"
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


def tidy() -> Iterator[int]:
    """Release freed memory and pages of program files, and join the rest to large pages.

    Yields between steps, which take up to some milliseconds, the bytes that the last one has joined. Pages that are
    still needed are read again from their file. What the kernel or the C library does not support does not happen, nor
    do large pages where the operator has switched them off.
    """
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(0)
    yield 0
    mappings = list(_mappings())
    for number, mapping in enumerate(mappings):
        if number % _MAPPINGS == 0:
            yield 0
        if mapping.rights in ("r-xp", "r--p") and mapping.inode and _is_as_in_file(mapping):
            _libc.madvise(mapping.start, mapping.end - mapping.start, _MADV_DONTNEED)
    if not _large_pages_permitted():
        return
    for mapping in mappings:
        if mapping.rights == "rw-p" and not mapping.inode:
            for start in range(-(-mapping.start // _LARGE) * _LARGE, mapping.end - _LARGE + 1, _LARGE):
                if _resident(start, _LARGE) >= _USED:
                    yield 0 if _libc.madvise(start, _LARGE, _MADV_COLLAPSE) else _LARGE


def _large_pages_permitted() -> bool:
    with suppress(OSError), open(_POLICY, encoding="ascii") as policy:
        return "[never]" not in policy.read()
    return False


def _resident(start: int, size: int) -> int:
    """Return how many bytes of an area are in memory."""
    return sum(flags & _PRESENT > 0 for flags in _page_flags(start, size)) * PAGESIZE


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
