"""Reads the packets of one capture: a file, or a stream, of which nothing can be read twice."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from bccnd.core.formats.pcap import CaptureCounts, Packet, Reader
from bccnd.core.formats.uri import is_uri
from bccnd.errors import JournalError
from bccnd.journal import files
from bccnd.waiting_io import read_input

#: bytes read at once
CHUNK: Final = 1 << 18
#: bytes of a capture that its journal is named after
SAMPLE: Final = 1 << 16
#: the name of the standard input
STDIN: Final = "-"
#: the first byte of a file that is packed, and of no capture
_GZIP: Final = b"\x1f"


def is_stream(where: str) -> bool:
    """Whether a capture can be read only once: the standard input, a FIFO, a process substitution."""
    if where == STDIN:
        return True
    try:
        mode = 0 if is_uri(where) else os.stat(where).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISSOCK(mode)


class Capture:
    """``first`` is its first packet, None if there is none; ``sample`` its first bytes, ``size`` that of a file. A file
    is open only while its packets are read. ``tally`` counts what `packets` yields. Raises JournalError: unreadable,
    bad_capture."""

    def __init__(self, where: str, tally: CaptureCounts) -> None:
        self.where = where
        self.sample = b""
        self.size = 0
        self._tally = tally
        self._is_stream = is_stream(where)
        self._rest = self._read(tally if self._is_stream else CaptureCounts())
        self.first = next(self._rest, None)
        if not self._is_stream:
            self._rest.close()

    def packets(self, on_bytes: Callable[[int], None]) -> Iterator[Packet]:
        """Yield all packets; of a stream only once. Raises JournalError."""
        if not self._is_stream:
            return self._read(self._tally, on_bytes)
        return iter(()) if self.first is None else chain([self.first], self._rest)

    def _read(self, tally: CaptureCounts, on_bytes: Callable[[int], None] = lambda _: None) -> Generator[Packet]:
        reader, at = Reader(self.where, tally), 0
        try:
            with _open(self.where) as (file, content):
                self.size = 0 if self._is_stream else file.size()
                while piece := content.read(CHUNK):
                    self.sample = self.sample or piece[:SAMPLE]
                    yield from reader.feed(piece)
                    if not self._is_stream:
                        on_bytes(file.tell() - at)
                        at = file.tell()
        except pa.ArrowInvalid as error:
            detail = f"{self.where} cannot be unpacked: {error}"
            raise JournalError("bad_capture", detail, "copy it again") from error
        except OSError as error:  # also for a compressed file that was cut off
            detail = f"cannot read {self.where}: {error}"
            raise JournalError("unreadable", detail, "check that the file is complete") from error
        reader.finish()


@contextmanager
def _open(where: str) -> Iterator[tuple[Any, Any]]:
    """Open a capture: the file, and its content without gzip. Raises JournalError: unreadable."""
    try:
        file, start = _open_file(where)
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise JournalError("unreadable", f"cannot read {where}: {why}", "name a capture that can be read") from error
    with file:
        yield file, pa.CompressedInputStream(file, "gzip") if start == _GZIP else file


def _open_file(where: str) -> tuple[pa.NativeFile, bytes]:
    """Open a file or stream at its beginning; return its first byte, too."""
    if is_uri(where):
        filesystem, path = files.open_root(where)
        file: pa.NativeFile = filesystem.open_input_file(path)
        return file, file.read_at(1, 0)
    # not by pyarrow, which takes only names in UTF-8
    raw: io.RawIOBase = _Stream(where) if is_stream(where) else io.FileIO(where)
    opened = io.BufferedReader(raw, CHUNK)
    return pa.PythonFile(opened, mode="r"), opened.peek(1)[:1]


class _Stream(io.RawIOBase):
    """A file that cannot seek, also one that does not block."""

    def __init__(self, where: str) -> None:
        self._descriptor = os.dup(0) if where == STDIN else os.open(where, os.O_RDONLY | os.O_CLOEXEC)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = read_input(self._descriptor, len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()
