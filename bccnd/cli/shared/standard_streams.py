"""Standard streams that wait, also where their descriptor is non-blocking: reading for input, writing for room."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from bccnd.waiting_io import read_input, wait_for_room

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class _WaitingFile(io.RawIOBase):
    """Standard input, below its buffer. Closing it leaves the descriptor open."""

    def __init__(self, fd: int, name: str) -> None:
        self._fd = fd
        self.name = name

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        data = read_input(self._fd, len(view))
        view[: len(data)] = data
        return len(data)


class _WaitingWriter(io.BufferedWriter):
    """The buffer of standard output or standard error.

    The file below is one of the interpreter's, not a class like that of the input: between a write and the note of its
    length is no moment for Ctrl-C, after which the same text would be written again.
    """

    def write(self, data: ReadableBuffer) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while True:
            try:
                return done + super().write(view[done:])
            except BlockingIOError as full:
                done += full.characters_written
                wait_for_room(self.fileno())

    def flush(self) -> None:
        while True:
            try:
                return super().flush()
            except BlockingIOError:
                wait_for_room(self.fileno())


def make_streams_wait() -> None:
    """Replace `sys.stdin`, `sys.stdout` and `sys.stderr`, except those that are closed or were replaced before."""
    if sys.stdin is sys.__stdin__ and isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin = _rebuilt(sys.stdin, io.BufferedReader(_WaitingFile(0, sys.stdin.name)))
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _rebuilt(sys.stdout, _waiting_writer(1, sys.stdout.name))
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _rebuilt(sys.stderr, _waiting_writer(2, sys.stderr.name))


def _waiting_writer(fd: int, name: str) -> _WaitingWriter:
    file = io.FileIO(fd, "w", closefd=False)
    file.name = name
    return _WaitingWriter(file)


def _rebuilt(stream: io.TextIOWrapper, buffer: io.BufferedReader | io.BufferedWriter) -> io.TextIOWrapper:
    lines = stream.line_buffering or stream.write_through  # the latter with python -u, which has no buffer
    return io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=lines)
