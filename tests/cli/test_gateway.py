"""`bccnd --gateway`: what the service manager is told, and when."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.activation import Notified
from tests.e2e.harness import PATIENCE

NAMES = ("broker", "nng")


PROGRAM: Final = """
import sys
from bccnd.gateways import base
base.TAKEOVER = float(sys.argv.pop(1))
from bccnd.cli.bccnd_main import main
main()
"""


class Service:
    """A gateway as systemd runs it, which waits for so many seconds for its port; that is ``taken``."""

    def __init__(self, folder: Path, name: str, ends: ExitStack, seconds: float) -> None:
        folder.mkdir()
        self.taken = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.address = self.taken.getsockname()
        self.manager = ends.enter_context(Notified(folder / "notify"))
        place = "{}:{}".format(*self.address)
        section: Any = {"tcp": place, "state": "state"} if name == "broker" else {"listen": [f"tcp://{place}"]}
        config = folder / "bccnd.yaml"
        config.write_text(json.dumps({"bus": {"path": str(folder / "bus")}, "gateways": {name: section}}))
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(seconds), "--gateway", name, "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NOTIFY_SOCKET": self.manager.address},
        )
        ends.callback(self.process.communicate)
        ends.callback(self.process.kill)

    def serves(self) -> None:
        """It says that it is ready, and is."""
        self.manager.until("READY=1")
        socket.create_connection(self.address, PATIENCE).close()

    def ends(self) -> tuple[int, str]:
        _, output = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, output


@pytest.fixture
def services(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Service]]:
    """One for each gateway."""
    with ExitStack() as ends:
        yield [Service(tmp_path / name, name, ends, getattr(request, "param", 60.0)) for name in NAMES]


def test_it_is_ready_once_it_listens(services: list[Service]) -> None:
    for each in services:
        assert "{}:{}".format(*each.address) in str(each.manager.until("STATUS="))
        each.taken.close()
    for each in services:
        each.serves()


@pytest.mark.parametrize("services", [0.3], indirect=True)
def test_an_address_that_stays_taken_is_a_start_that_has_failed(services: list[Service]) -> None:
    for each in services:
        status, output = each.ends()
        assert (status, "Traceback" in output, "remedy: " in output) == (1, False, True)
        assert "{}:{}".format(*each.address) in output
        reported = [line for one in each.manager.all() for line in one.lines]
        assert not any(line.startswith("READY") for line in reported)
        assert any(line.startswith("STATUS=cannot start") for line in reported)


def test_one_that_is_told_to_end_while_it_waits_ends_well(services: list[Service]) -> None:
    for each in services:
        each.manager.until("STATUS=")
        each.process.terminate()
    assert [each.ends()[0] for each in services] == [0, 0]
