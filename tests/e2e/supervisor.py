"""What stands in for systemd where a daemon is to be killed a hundred times: it owns the sockets, keeps what it is
given to keep (sd_notify(3), FDSTORE=1), and passes all of it to the next daemon.

It does what the manual says that systemd does, and nothing else; tests/systemd does the same with the real one.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.activation import Told
from tests.e2e.harness import PATIENCE
from tests.e2e.service import Service


class Supervisor(Service):
    """A service that is started again whenever it has ended, by `again`."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None, *, patience: float = PATIENCE) -> None:
        super().__init__(folder, settings, patience=patience)
        self.bind("bus", "udp")
        self.manager.sock.settimeout(0.1)
        #: what is kept, by name
        self.store: dict[str, list[int]] = {}
        self.starts = 0
        self._ready = 0
        self._over = threading.Event()
        self._ears = threading.Thread(target=self._listen)
        self._ears.start()

    def _listen(self) -> None:
        while not self._over.is_set():
            told = self.manager.hear(0.1)
            if told is not None:
                self._obey(told)

    def _obey(self, told: Told) -> None:
        name = told.value("FDNAME") or ""
        if told.value("FDSTORE") == "1":
            assert told.value("FDPOLL") == "0", told
            self.store.setdefault(name, []).extend(told.descriptors)
        elif told.value("FDSTOREREMOVE") == "1":
            for fd in self.store.pop(name, []):
                os.close(fd)
        elif told.value("READY") == "1":
            self._ready += 1

    def to_pass(self) -> list[tuple[str, int]]:
        # systemd reads what a process has told it before it sees that it has ended.
        self._settle()
        return super().to_pass() + [(name, fd) for name, fds in self.store.items() for fd in fds]

    def _settle(self) -> None:
        """Until nothing more is said."""
        still = 0
        while still < 3:
            before = (len(self.store), self._ready)
            time.sleep(0.01)
            still = still + 1 if before == (len(self.store), self._ready) else 0

    def start(self) -> None:
        ready = self._ready
        self.process = self.spawn()
        self.starts += 1
        deadline = time.monotonic() + self.patience
        while self._ready == ready:
            assert self.process.poll() is None, f"the daemon ended:\n{self.said()}"
            assert time.monotonic() < deadline, f"the daemon is not ready:\n{self.said()}"
            time.sleep(0.002)

    def end(self, number: int) -> None:
        """End the daemon by a signal, and wait until it has."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(self.patience)

    def again(self, number: int) -> None:
        """End the daemon by a signal and start another one."""
        self.end(number)
        self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.stop()
        self._over.set()
        self._ears.join()
        super().__exit__(kind, error, trace)
        for fds in self.store.values():
            for fd in fds:
                os.close(fd)
