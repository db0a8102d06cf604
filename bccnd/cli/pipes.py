"""Ends a tool quietly when the program that reads its standard output has gone, as SIGPIPE does for tools in C.

SIGPIPE itself stays ignored, as Python has it: a peer that hangs up on any other pipe or socket of the process is an
error of that one connection, and no end of the program.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def end_with_reader() -> None:
    """From now on writing to standard output, once its other end is closed, ends this program by SIGPIPE; what an
    encoding cannot show is escaped."""
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper):
        return
    stream.reconfigure(errors="backslashreplace")
    buffered = stream.buffer
    raw = buffered.raw if isinstance(buffered, io.BufferedWriter) else buffered
    if stream is not sys.__stdout__ or not isinstance(raw, io.FileIO):  # put in its place by a program that runs this
        return
    stream.flush()
    ours = _StandardOutput(raw.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(ours) if raw is not buffered else ours,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _StandardOutput(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            if threading.current_thread() is not threading.main_thread():  # which alone may change signals
                raise
            _end()


def _end() -> NoReturn:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPIPE])
    os.kill(os.getpid(), signal.SIGPIPE)
    raise BrokenPipeError  # never reached
