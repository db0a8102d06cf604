"""Programs that run beside the daemon: started with it, started again when they end, ended with it.

Nothing here waits for such a program. One that ends by itself is started again after a pause that grows; one that
says it cannot run as it is configured is left alone until it is configured anew. It knows that the daemon is gone when
its standard input ends, whatever the daemon has died of.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from bccnd import log
from bccnd.net.loop import READABLE, Loop, Timer
from bccnd.net.service_manager import PRIVATE

#: seconds before a program is started again: the first time, and what doubling ends at
SHORTEST: Final = 0.5
LONGEST: Final = 30.0
#: seconds that a program has to run for its next end to count as the first
STEADY: Final = 60.0
#: exit code of a program that no further attempt will help
HOPELESS: Final = 2


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours, as sheltered from its environment as we are, from the same place."""
    flags = ["-I"] * sys.flags.isolated + ["-S"] * sys.flags.no_site
    program = f"import sys; sys.path[:] = {sys.path!r}; sys.argv[0] = 'bccnd'; from {module} import main; main()"
    return [sys.executable, *flags, "-c", program, *arguments]


class ChildProcess:
    """One program, by its ``name``; ``command`` is what runs it. ``on_end`` is called when it has ended."""

    def __init__(
        self, loop: Loop, name: str, command: Sequence[str], on_end: Callable[[], None] = lambda: None
    ) -> None:
        self.name = name
        self.starts = 0
        self._loop = loop
        self._command = list(command)
        self._on_end = on_end
        self._pid = 0
        self._pidfd = -1
        self._leash = -1
        self._since = 0.0
        self._pause = SHORTEST
        self._next: Timer | None = None
        #: whether it has said that it cannot run, and is left alone
        self.hopeless = False

    @property
    def pid(self) -> int:
        """The process, 0 while there is none."""
        return self._pid

    def start(self) -> None:
        """Start it; what hinders that is said, and tried again."""
        self._next = None
        self.hopeless = False
        read = write = -1
        try:
            read, write = os.pipe2(os.O_CLOEXEC)
            # The loop's signals are blocked nowhere and ignored nowhere; what it handles is default in another program.
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
            if self._pid:  # it was started, and we could not see when it ends
                os.kill(self._pid, signal.SIGKILL)
                _reap_later(self._loop, self._pid)
                self._pid = 0
            self._say("cannot be started", error.strerror or "unknown")
            self._again()
            return
        finally:
            if read >= 0:
                os.close(read)
        self._leash = write
        self.starts += 1
        self._since = time.monotonic()
        self._loop.watch(self._pidfd, READABLE, self._on_exit)

    def _on_exit(self, _events: int) -> None:
        _, status = os.waitpid(self._pid, 0)
        self._let_go()
        self._on_end()
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == HOPELESS:
            self.hopeless = True
            return  # it has said why
        if time.monotonic() - self._since > STEADY:
            self._pause = SHORTEST
        code = os.waitstatus_to_exitcode(status)
        self._say("has ended", signal.Signals(-code).name if code < 0 else f"exit code {code}")
        self._again()

    def _say(self, what: str, why: str) -> None:
        log.event(
            "gateway_ended",
            f"the gateway {self.name} {what} ({why}); next attempt in {self._pause:g} s",
            remedy="see its messages before this one",
            gateway=self.name,
            reason=why,
        )

    def _again(self) -> None:
        self._next = self._loop.later(self._pause, self.start)
        self._pause = min(2 * self._pause, LONGEST)

    def _let_go(self) -> None:
        self._loop.unwatch(self._pidfd)
        os.close(self._pidfd)
        os.close(self._leash)
        self._pid, self._pidfd, self._leash = 0, -1, -1

    def stop(self) -> None:
        """Have it end, and do not start it again; it is not waited for."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._pid:
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
            # Whoever does not take the hint sees the end of its input, and is reaped with us.
            pid = self._pid
            self._let_go()
            _reap_later(self._loop, pid)

    def close(self) -> None:
        """We end: so does it."""
        if self._pid:
            os.close(self._leash)
            os.close(self._pidfd)
            self._pid = 0


def _reap_later(loop: Loop, pid: int) -> None:
    if os.waitpid(pid, os.WNOHANG) == (0, 0):
        loop.later(SHORTEST, lambda: _reap_later(loop, pid))


def _environment() -> dict[str, str]:
    """Ours, but for what the service manager has told us alone."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)}
