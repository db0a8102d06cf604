"""Replaces what a daemon asks of the process that it runs in, as several simulated daemons share one.

Its pid, its signals, who its clients are, and the programs that it starts. Everything else is the real thing.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bccnd.config import Configuration
from tools.simulate import interposer

#: what a gateway is here: a child that runs until its input ends
CHILD: Final = ["/bin/cat"]
#: of the address that a client is bound to, from which its process is read
_NAME: Final = "bccnd-simulated"

_real_getpid: Final = os.getpid
_real_spawn: Final = os.posix_spawn
_real_signal_child: Final = signal.pidfd_send_signal
_current: list[Process] = []


class Process:
    """What belongs to one simulated process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        #: where the numbers of its signals are written
        self.wakeup_fd = -1

    @contextmanager
    def running(self) -> Iterator[None]:
        """What runs now is this process."""
        _current.append(self)
        try:
            yield
        finally:
            _current.pop()

    def signal(self, number: int) -> None:
        os.write(self.wakeup_fd, bytes([number]))


def address_of(pid: int, uid: int, serial: int) -> bytes:
    """Return the abstract address that a client of a process and user binds to."""
    return f"\0{_NAME}/{pid}/{uid}/{serial}".encode()


def _credentials(sock: socket.socket) -> tuple[int, int, int]:
    _, pid, uid, _ = sock.getpeername().decode().split("/")
    return int(pid), int(uid), int(uid)


def _getpid() -> int:
    return _current[-1].pid if _current else _real_getpid()


def _set_wakeup_fd(fd: int, *, warn_on_full_buffer: bool = True) -> int:
    if _current:
        _current[-1].wakeup_fd = fd
    return -1


def _spawn(*arguments: Any, **options: Any) -> int:
    """Start a child and wait until it waits for input: before, it may hold copies of this process' descriptors."""
    pid = _real_spawn(*arguments, **options)
    call = Path(f"/proc/{pid}/syscall")
    interposer.wait(lambda: call.read_text().startswith("0 0x0 "), "a child to read its input")
    return pid


def _end_child(pidfd: int, number: int) -> None:
    """Signal a child and wait for its end, which would come at another moment each time."""
    _real_signal_child(pidfd, number)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    interposer.wait(lambda: poll.poll(0), "the end of a child")


def install() -> None:
    """Replace them; to be called once, before the first daemon is made."""
    from bccnd.daemon import gateway_processes, memory_pages
    from bccnd.daemon.background_loader import BackgroundLoader
    from bccnd.net import peer

    def load_at_once(loader: BackgroundLoader) -> None:
        """Load without a thread, which would not be the same each time."""
        try:
            configuration = loader._load()
        except Exception as error:  # noqa: BLE001 - raised again where it belongs
            fault = error

            def outcome() -> Configuration:
                raise fault

            loader._done(outcome)
        else:
            loader._done(lambda: configuration)

    def program_of(pid: int) -> tuple[bytes, int]:
        return b"sim%d" % (pid % 7), pid

    replaced: list[tuple[Any, str, Any]] = [
        (os, "getpid", _getpid),
        (os, "posix_spawn", _spawn),
        (signal, "signal", lambda _number, _handler: None),
        (signal, "set_wakeup_fd", _set_wakeup_fd),
        (signal, "pidfd_send_signal", _end_child),
        (peer, "credentials", _credentials),
        (peer, "_program_of", program_of),
        (peer, "_is_same_process", lambda _sock: True),
        (peer, "_groups", lambda _sock: frozenset()),
        # takes milliseconds of every start, for the memory of a process that is shared here
        (memory_pages, "tidy", lambda: iter(())),
        (gateway_processes, "python_command", lambda *_words: CHILD),
        (BackgroundLoader, "start", load_at_once),
    ]
    for where, name, value in replaced:
        if not hasattr(where, name):
            raise AttributeError(f"{where.__name__} has no {name} any more: say in {__name__} what replaces it")
        setattr(where, name, value)
