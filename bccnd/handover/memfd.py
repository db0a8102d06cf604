"""Files in memory that outlive the daemon in systemd's descriptor store.

Invariant: appended bytes survive whatever happens next. A file is replaced atomically: the new image is written behind
the old one, then one number says where it begins. Source: memfd_create(2), fallocate(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import struct
from collections.abc import Callable
from typing import Final

_MAGIC: Final = b"bccntap1"
_HEADER: Final = struct.Struct("=8sQ")
_PUNCH_HOLE: Final = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
#: bytes from which on a file is worth replacing
WORTH: Final = 1 << 18

_libc: Final = ctypes.CDLL(None)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def create(name: str) -> int:
    """Create an empty file in memory; return its descriptor. Raises OSError."""
    return os.memfd_create(name, os.MFD_CLOEXEC)


def map_whole(fd: int, size: int) -> mmap.mmap:
    """Map the first ``size`` bytes of a file, shared with other processes. Raises OSError."""
    if os.fstat(fd).st_size < size:
        os.ftruncate(fd, size)
    return mmap.mmap(fd, size)


def _ignore() -> None:
    """Do nothing."""


class File:
    """A file that grows at its end until it is replaced; ``grown`` is called when that is worth while."""

    def __init__(self, fd: int) -> None:
        """Take over ``fd``: an empty file, or one that another `File` has written. Raises OSError."""
        self.fd = fd
        self.grown: Callable[[], None] = _ignore
        raw = os.pread(fd, _HEADER.size, 0)
        magic, start = _HEADER.unpack(raw) if len(raw) == _HEADER.size else (b"", 0)
        self.understood = magic == _MAGIC or not raw
        if magic != _MAGIC:
            start = _HEADER.size
            os.ftruncate(fd, 0)
            os.pwrite(fd, _HEADER.pack(_MAGIC, start), 0)
        self._start = start
        #: where the next bytes come; it never goes back
        self.end = max(start, os.fstat(fd).st_size)
        self._limit = WORTH

    def __len__(self) -> int:
        size: int = self.end - self._start
        return size

    def read(self) -> bytes:
        return os.pread(self.fd, len(self), self._start)

    def cut(self, size: int) -> None:
        """Keep the first ``size`` bytes only. Raises OSError."""
        self.end = self._start + size
        # Otherwise the rest would stand behind what is appended, if that is shorter.
        os.ftruncate(self.fd, self.end)

    def append(self, data: bytes) -> None:
        """Append bytes. Raises OSError if there is no memory."""
        self._write(data)
        self.end += len(data)
        if self.end - self._start > self._limit:
            self._limit *= 2  # reported once, even if it is not replaced
            self.grown()

    def replace(self, image: bytes) -> None:
        """Replace the contents by ``image``. Raises OSError."""
        self._write(image)
        before, self._start = self._start, self.end
        os.pwrite(self.fd, _HEADER.pack(_MAGIC, self._start), 0)
        self.end += len(image)
        self._limit = max(WORTH, 3 * len(image))
        # The page in which the old image began is freed too, unless it holds the header.
        first, last = max(4096, before // 4096 * 4096), self._start // 4096 * 4096
        if last > first:
            _libc.fallocate(self.fd, _PUNCH_HOLE, first, last - first)

    def _write(self, data: bytes) -> None:
        """Write behind the end: all, or nothing that a reader would see. Raises OSError."""
        written = 0
        try:
            # If room ends in the middle, only the next attempt reports it.
            while written < len(data):
                written += os.pwrite(self.fd, data[written:] if written else data, self.end + written)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self.fd, self.end)
            raise

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self.grown = _ignore  # the other function may refer to this file: a cycle that lives on in frozen memory
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
