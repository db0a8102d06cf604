"""What stands in for systemd: it passes sockets to a program, and hears what the program notifies it of.

Written once more by hand, from sd_listen_fds(3) and sd_notify(3); nothing here knows how the daemon does it.
"""

from __future__ import annotations

import array
import os
import select
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.support import PATIENCE, Closing

#: puts the descriptors where they are looked for, and becomes the program
_LAUNCH: Final = """
import fcntl, os, sys
names, descriptors, *command = sys.argv[1:]
held = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 300) for one in descriptors.split(",") if one]
for place, one in enumerate(held, start=3): os.dup2(one, place)
os.closerange(3 + len(held), 1000)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(held)), LISTEN_FDNAMES=names)
os.execvp(command[0], command)
"""


def launch(passed: Sequence[tuple[str, int]]) -> list[str]:
    """The beginning of a command that passes descriptors, each with a name, to the program that stands behind it; they
    have to be inherited."""
    names, descriptors = (":".join(name for name, _ in passed), ",".join(str(one) for _, one in passed))
    return [sys.executable, "-c", _LAUNCH, names, descriptors]


class Notification(NamedTuple):
    """A notification: its assignments in their order, and the descriptors that came with it."""

    lines: list[str]
    descriptors: list[int]

    def value(self, name: str) -> str | None:
        return next((line.partition("=")[2] for line in self.lines if line.startswith(f"{name}=")), None)


class Notified(Closing):
    """A service manager's end of NOTIFY_SOCKET."""

    def __init__(self, address: str | Path) -> None:
        self.address = str(address)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.sock.bind(self.address.replace("@", "\0", 1) if self.address.startswith("@") else self.address)
        self.senders: set[int] = set()
        #: what was told and passed over by `until`
        self.before: list[Notification] = []

    def receive(self, patience: float = PATIENCE) -> Notification | None:
        """The next notification; None when nothing is said for so long."""
        if not select.select([self.sock], [], [], patience)[0]:
            return None
        text, ancillary, flags, _ = self.sock.recvmsg(4097, 4096)
        assert not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(data)
            elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                self.senders.add(int.from_bytes(data[:4], sys.byteorder))
        return Notification(text.decode("utf-8").split("\n"), list(descriptors))

    def all(self) -> list[Notification]:
        """What was said so far and not heard."""
        found = []
        while one := self.receive(0):
            found.append(one)
        return found

    @staticmethod
    def _stores(one: Notification) -> bool:
        for descriptor in one.descriptors:
            os.close(descriptor)
        return one.lines[0].startswith("FDSTORE")

    def until(self, line: str) -> Notification:
        """The next notification that holds a line, or an assignment to it if it ends in ``=``; what is to be stored
        meanwhile is let go."""
        deadline = time.monotonic() + 2 * PATIENCE
        self.before = []
        while (left := deadline - time.monotonic()) > 0:
            one = self.receive(left)
            if one is None:
                break
            if any(each == line or (line.endswith("=") and each.startswith(line)) for each in one.lines):
                return one
            if not self._stores(one):
                self.before.append(one)
        raise AssertionError(f"waited in vain for {line}; told: {self.before}")

    def close(self) -> None:
        self.sock.close()
        if self.address.startswith("/"):
            os.unlink(self.address)
