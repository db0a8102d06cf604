"""A daemon as systemd starts it: sockets that were bound before are passed to it, and it notifies a manager."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.activation import Notified, launch
from tests.e2e.harness import PATIENCE, Daemon


class Service(Daemon):
    """A daemon as a service: what `bind` has bound is passed to it, in that order; it notifies ``manager``.

    ``barred`` is what the kernel does to it when it opens a socket of another family than AF_UNIX.
    """

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any] | None = None,
        *,
        barred: int = 0,
        prefix: Sequence[str] = (),
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(folder, settings, prefix=prefix, start=False, patience=patience)
        self.passed: list[tuple[str, socket.socket]] = []
        self.manager = Notified(folder / "notify")
        self._barred = barred

    def bind(self, *what: str) -> None:
        """Bind ``bus``, ``udp`` and ``metrics`` where they are configured."""
        for name in what:
            if name == "bus":
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                sock.bind(str(self.bus))
                self.bus.chmod(0o660)
                sock.listen()
            elif name == "udp":
                sock = bound_udp(self.port)
            else:
                host, _, port = self.settings["metrics"]["listen"].partition(":")
                sock = socket.create_server((host, int(port)))
            self.passed.append((name, sock))

    def spawn(self) -> subprocess.Popen[bytes]:
        passed = self.to_pass()
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*launch(passed, barred=self._barred), *self.command()],
                stdin=subprocess.DEVNULL,
                stderr=log,
                pass_fds=[fd for _, fd in passed],
                env={**os.environ, "NOTIFY_SOCKET": self.manager.address},
            )

    def to_pass(self) -> list[tuple[str, int]]:
        """Names and descriptors that the daemon is to find."""
        return [(name, sock.fileno()) for name, sock in self.passed]

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            status = self.stop()
            assert kind is not None or status == 0, self.output()
            assert "bug" not in self.output(), self.output()
        for _, sock in self.passed:
            sock.close()
        self.manager.close()


def bound_udp(port: int, host: str = "") -> socket.socket:
    """Bound as a socket unit with Broadcast=yes binds it."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    sock.bind((host, port))
    return sock
