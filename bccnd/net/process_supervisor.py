"""Supervises child processes: starts them, restarts them after a growing pause, and ends them with the daemon.

A child that exits with `EXIT_NO_RETRY` is not restarted. Its standard input is a pipe that the daemon holds open: the
child reads its end when the daemon is gone, however that died. Nothing here blocks.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from bccnd import log
from bccnd.net.loop import READABLE, Loop, Timer
from bccnd.net.service_manager import PRIVATE

#: seconds before a restart: the first, and the maximum; each doubles the one before
MIN_PAUSE: Final = 0.5
MAX_PAUSE: Final = 30.0
#: seconds of running after which the pause is short again
STEADY: Final = 60.0
#: exit code of a child that would fail again
EXIT_NO_RETRY: Final = 2


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module with this interpreter, its flags and its import path."""
    flags = ["-I"] * sys.flags.isolated + ["-S"] * sys.flags.no_site
    program = f"import sys; sys.path[:] = {sys.path!r}; sys.argv[0] = 'bccnd'; from {module} import main; main()"
    return [sys.executable, *flags, "-c", program, *arguments]


class ChildProcess:
    """A supervised program."""

    def __init__(self, loop: Loop, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.starts = 0
        self._loop = loop
        self._command = list(command)
        self._pid = 0
        self._pidfd = -1
        self._stdin_pipe = -1
        self._since = 0.0
        self._pause = MIN_PAUSE
        self._restart: Timer | None = None
        #: whether it exited with `EXIT_NO_RETRY`
        self.gave_up = False

    @property
    def pid(self) -> int:
        """The process id; 0 while it does not run."""
        return self._pid

    def start(self) -> None:
        """Start it; a failure is logged and retried."""
        self._restart = None
        self.gave_up = False
        read = write = -1
        try:
            read, write = os.pipe2(os.O_CLOEXEC)
            # Python ignores SIGPIPE; other signals are neither blocked nor ignored here.
            self._pid = os.posix_spawn(
                self._command[0],
                self._command,
                _environment(),
                file_actions=[(os.POSIX_SPAWN_DUP2, read, 0)],
                setsigdef=[signal.SIGPIPE],
            )
            self._pidfd = os.pidfd_open(self._pid)
        except OSError as error:
            if write >= 0:
                os.close(write)
            if self._pid:  # it runs, but its end could not be observed
                with suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
                _reap_later(self._loop, self._pid)
                self._pid = 0
            self._log("cannot start", error.strerror or "unknown")
            self._schedule_restart()
            return
        finally:
            if read >= 0:
                os.close(read)
        self._stdin_pipe = write
        self.starts += 1
        self._since = time.monotonic()
        self._loop.watch(self._pidfd, READABLE, self._on_exit)

    def _on_exit(self, _events: int) -> None:
        status = _reap(self._pid)
        if status is None:
            return
        self._release()
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == EXIT_NO_RETRY:
            self.gave_up = True
            return  # it has logged why
        if time.monotonic() - self._since > STEADY:
            self._pause = MIN_PAUSE
        code = os.waitstatus_to_exitcode(status)
        self._log("has ended", signal.Signals(-code).name if code < 0 else f"exit code {code}")
        self._schedule_restart()

    def _log(self, what: str, why: str) -> None:
        log.event(
            "gateway_ended",
            f"gateway {self.name} {what} ({why}); next attempt in {self._pause:g} s",
            remedy="read the earlier log lines of this gateway",
            gateway=self.name,
            reason=why,
        )

    def _schedule_restart(self) -> None:
        self._restart = self._loop.later(self._pause, self.start)
        self._pause = min(2 * self._pause, MAX_PAUSE)

    def _release(self) -> None:
        self._loop.unwatch(self._pidfd)
        os.close(self._pidfd)
        os.close(self._stdin_pipe)
        self._pid, self._pidfd, self._stdin_pipe = 0, -1, -1

    def stop(self) -> None:
        """Terminate it and do not restart it, unless it is started again; does not wait for its end."""
        self._pause = MIN_PAUSE
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        if self._pid:
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
            # A child that ignores the signal reads the end of its input.
            pid = self._pid
            self._release()
            _reap_later(self._loop, pid)

    def close(self) -> None:
        """Close its standard input, which makes it end; for the end of the daemon."""
        if self._pid:
            self._release()


def _reap(pid: int) -> int | None:
    """Return the wait status of a child; None while it runs."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0  # the kernel has reaped it: the parent of this process ignores SIGCHLD
    return status if ended else None


def _reap_later(loop: Loop, pid: int) -> None:
    if _reap(pid) is None:
        loop.later(MIN_PAUSE, lambda: _reap_later(loop, pid))


def _environment() -> dict[str, str]:
    """Return our environment without the service manager's variables for this process."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)}
