"""Private buses for the tests of programs: the pytest fixture `bus`, and `private_bus` for fixtures of your own.

Each bus is a daemon with a segment on the loopback network that no other program uses. It needs no root.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from bccnd.client.bus import Connection, connect
from bccnd.errors import BccndError, BusError

_BROADCAST: Final = "127.255.255.255"
#: seconds that a daemon may take to start, and to end
_PATIENCE: Final = 20.0
#: seconds between two looks at what is waited for
_STEP: Final = 0.02
_DAEMON: Final = (sys.executable, "-P", "-c", "from bccnd.cli.bccnd_main import main; main()", "--bound", "--config")


class PrivateBus:
    """A daemon for tests, with the name ``host`` on a segment of its own.

    ``path`` is its socket, for programs that are tested. With ``address`` and ``port`` of its segment, an
    `Endpoint` or ``bccn direct`` sends like a program of another host.
    """

    def __init__(self, host: str, port: int, folder: Path, stack: ExitStack, sections: dict[str, Any]) -> None:
        self.host = host
        self.path = str(folder / f"{host}.sock")
        self.address = _BROADCAST
        self.port = port
        self._folder = folder
        self._log = folder / f"{host}.log"
        self._stack = stack
        self._start(sections)

    @property
    def log(self) -> str:
        """What the daemon has logged."""
        return self._log.read_text()

    def connect(self, **options: Any) -> Connection:
        """Connect to this bus, with the options of `bccnd.connect`; the connection is closed when the test ends."""
        return self._stack.enter_context(connect(self.path, **options))

    def add_host(self, host: str, **sections: Any) -> PrivateBus:
        """Start the daemon of another host on the same segment."""
        return PrivateBus(host, self.port, self._folder, self._stack, sections)

    def wait_for_receivers(self, channel: str, count: int = 1, timeout: float = 10.0) -> None:
        """Wait until so many clients of this daemon receive a channel. Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        with connect(self.path) as asking:
            while True:
                found = json.loads(asking.ask("!/bccn/receivers", channel))["receivers"]
                if len(found) >= count:
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(found)} clients receive {channel!r}, not {count}; the log:\n{self.log}")
                time.sleep(_STEP)

    def _start(self, sections: dict[str, Any]) -> None:
        """Start the daemon, and wait until it serves. Raises BccndError: not_started, with its log."""
        settings: dict[str, Any] = {
            "host": self.host,
            "segments": [{"address": _BROADCAST, "port": self.port}],
            "bus": {"path": self.path, "mode": "0600"},
            "metrics": {"listen": "off"},
            "reports": {"interval": 0},
        }
        for name, section in sections.items():
            settings[name] = {**settings.get(name, {}), **section} if isinstance(section, dict) else section
        config = self._folder / f"{self.host}.yaml"
        config.write_text(json.dumps(settings))
        with self._log.open("wb") as log:
            command = [*_DAEMON, str(config)]
            daemon = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)  # noqa: S603 -- our own
        self._stack.callback(_end, daemon)
        deadline = time.monotonic() + _PATIENCE
        while not self._serves():
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise BccndError("not_started", f"the daemon of {self.host} does not serve; its log:\n{self.log}")
            time.sleep(_STEP)

    def _serves(self) -> bool:
        with suppress(BusError), connect(self.path) as bus:
            bus.sync()
            return True
        return False


def _end(daemon: subprocess.Popen[bytes]) -> None:
    """End a daemon; without this, it ends when standard input does, which is when this process ends."""
    daemon.terminate()
    try:
        daemon.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait(_PATIENCE)
        raise
    finally:
        if daemon.stdin is not None:
            daemon.stdin.close()


@contextmanager
def private_bus(host: str = "test", **sections: Any) -> Iterator[PrivateBus]:
    """Run a daemon for tests. ``sections`` are those of its configuration, such as ``dedup={"late": "deliver"}``.

        @pytest.fixture(scope="session")
        def bus():
            with bccnd.testing.private_bus() as bus:
                yield bus

    Raises BccndError: not_started, with the log of the daemon.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bccnd-test-")))
        # Reserves the port: it is taken without sharing, and then shared with daemons.
        reserved = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        reserved.bind(("127.0.0.1", 0))
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield PrivateBus(host, reserved.getsockname()[1], folder, stack, sections)


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateBus]:
    """A private bus for one test, to which ``bccnd.connect()`` and the command ``bccn`` connect."""
    with private_bus() as bus:
        monkeypatch.setenv("BCCN_SOCKET", bus.path)
        yield bus
