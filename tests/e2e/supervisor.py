"""A stand-in for systemd where a daemon is killed again and again: it passes sockets, and keeps what is stored."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

from tests.activation import Notification, Notified, launch
from tests.e2e.harness import PATIENCE, Daemon, wait


class Supervisor(Daemon):
    """A daemon that is started again by `again`, with its sockets and all that it has stored."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None, *, patience: float = PATIENCE) -> None:
        super().__init__(folder, settings, start=False, patience=patience)
        self.manager = Notified(folder / "notify")
        address, _, port = self.settings["metrics"]["listen"].partition(":")
        metrics = socket.create_server((address, int(port)))
        #: what is passed to each daemon, by name
        self.passed = {"bus": bound_bus(self.bus), "udp": bound_udp(self.port), "metrics": metrics}
        #: what is kept, by name
        self.store: dict[str, list[int]] = {}
        self.starts = 0
        self._ready = 0
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._ears = threading.Thread(target=self._listen)
        self._ears.start()

    def _listen(self) -> None:
        while not self._over.is_set():
            if select.select([self.manager.sock], [], [], 0.1)[0]:
                self._take()

    def _take(self) -> None:
        """Take in all notifications that were sent so far."""
        with self._lock:
            while (reported := self.manager.receive(0)) is not None:
                self._obey(reported)

    def _obey(self, reported: Notification) -> None:
        name = reported.value("FDNAME") or ""
        if reported.value("FDSTORE") == "1":
            assert reported.value("FDPOLL") == "0", reported
            self.store.setdefault(name, []).extend(reported.descriptors)
        elif reported.value("FDSTOREREMOVE") == "1":
            for fd in self.store.pop(name, []):
                os.close(fd)
        elif reported.value("READY") == "1":
            self._ready += 1

    def spawn(self) -> subprocess.Popen[bytes]:
        # systemd reads what a process has sent before it sees that it has ended.
        self._take()
        passed = [(name, sock.fileno()) for name, sock in self.passed.items()]
        passed += [(name, fd) for name, fds in self.store.items() for fd in fds]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*launch(passed), *self.command()],
                stdin=subprocess.DEVNULL,
                stderr=log,
                pass_fds=[fd for _, fd in passed],
                env={**os.environ, "NOTIFY_SOCKET": self.manager.address},
            )

    def start(self) -> None:
        ready = self._ready
        self.process = self.spawn()
        self.starts += 1
        wait(lambda: self._ready > ready or self.ended(), "the daemon to be ready", self.patience)
        assert not self.ended(), f"the daemon ended:\n{self.output()}"

    def end(self, number: int) -> None:
        """End the daemon by a signal, and wait until it has."""
        self.kill(number)

    def again(self, number: int) -> None:
        """End the daemon by a signal and start another one."""
        self.end(number)
        self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            status = self.stop()
            assert kind is not None or status == 0, self.output()
            assert "bug" not in self.output(), self.output()
        self._over.set()
        self._ears.join()
        for sock in self.passed.values():
            sock.close()
        self.manager.close()
        for fds in self.store.values():
            for fd in fds:
                os.close(fd)


def bound_bus(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.bind(str(path))
    path.chmod(0o660)
    sock.listen()
    return sock


def bound_udp(port: int) -> socket.socket:
    """Bound as a socket unit with Broadcast=yes binds it."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    sock.bind(("", port))
    return sock
