"""Standard streams that are closed, or that cannot be written to: a message in place of a traceback."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from bccnd.cli.shared.standard_streams import make_streams_wait
from bccnd.errors import StartError

#: names by descriptor
_NAMES: Final = ("standard input", "standard output", "standard error")
#: what writing to a full or broken file ends with
_CANNOT_WRITE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def fill_closed_streams(*, fail: bool) -> tuple[str, ...]:
    """Open /dev/null in the place of standard streams that are closed, so that no socket gets their descriptor; the
    first step of every program. Returns their names. With ``fail``, using standard input or output fails with EBADF.
    """
    closed = []
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            # The lowest free descriptor is this one. Opened the wrong way round, it fails.
            os.open(os.devnull, (os.O_WRONLY, os.O_RDONLY)[fd] if fail and fd < 2 else os.O_RDWR)
            os.set_inheritable(fd, True)
            closed.append(_NAMES[fd])
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open for as long as the program runs
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
    return tuple(closed)


@contextmanager
def reported_streams(closed: tuple[str, ...], program: str = "bccn") -> Iterator[None]:
    """End with a message and status 1 where a standard stream cannot be read or written; ``closed`` are the names of
    those that are closed."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno not in _CANNOT_WRITE or error.filename is not None:
            raise
        if _NAMES[1] in closed or error.errno != errno.EBADF:
            what = f"cannot write to {_NAMES[1]}"
        else:
            what = f"cannot read {_NAMES[0]}"
        why = "it is closed" if error.errno == errno.EBADF else error.strerror
        # What is still buffered goes nowhere, instead of failing again at exit.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
        click.echo(f"{program}: {what}: {why}", err=True)
        sys.exit(1)


class ServerCommand(click.Command):
    """A command that serves, after it may have printed something. A start that is not possible ends it with status 2;
    any other error but one of printing is passed on."""

    def main(self, *args: Any, **extra: Any) -> Any:
        fill_closed_streams(fail=False)
        make_streams_wait()
        try:
            return super().main(*args, **extra)
        except StartError as error:
            click.echo(f"{os.path.basename(sys.argv[0])}: {error}", err=True)
            sys.exit(2)
        except OSError as error:
            if all(frame.f_code is not click.echo.__code__ for frame, _ in traceback.walk_tb(error.__traceback__)):
                raise
            with reported_streams((), os.path.basename(sys.argv[0])):
                raise
