"""A stand-in for systemd where a daemon is killed a hundred times."""

from __future__ import annotations

import os
import select
import signal
import threading
from pathlib import Path
from typing import Any

from tests.activation import Notification
from tests.e2e.harness import PATIENCE, wait
from tests.e2e.service import Service


class Supervisor(Service):
    """A service that is started again by `again`, and whose manager keeps what it stores."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None, *, patience: float = PATIENCE) -> None:
        super().__init__(folder, settings, patience=patience)
        self.bind("bus", "udp")
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

    def to_pass(self) -> list[tuple[str, int]]:
        # systemd reads what a process has sent before it sees that it has ended.
        self._take()
        return super().to_pass() + [(name, fd) for name, fds in self.store.items() for fd in fds]

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

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.stop()
        self._over.set()
        self._ears.join()
        super().__exit__(kind, *rest)
        for fds in self.store.values():
            for fd in fds:
                os.close(fd)
