"""Programs that are started without standard streams: none of their descriptors gets the number of one."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import bccnd
from tests.e2e.harness import BIN, PATIENCE, Daemon
from tests.e2e.recorders import Recorder
from tests.support import free_port, wait

#: runs a command with these redirections
CLOSED = 'exec "$@" {}'


def streams(pid: int) -> list[str]:
    return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)]


@contextmanager
def running(redirections: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    null = subprocess.DEVNULL
    with subprocess.Popen(
        ["sh", "-c", CLOSED.format(redirections), "sh", *command], stdin=null, stdout=null, stderr=null
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def serves(path: Path) -> bool:
    try:
        with bccnd.connect(str(path), reconnect=False) as client:
            client.subscribe("a")
            client.publish("a", b"x")
            return isinstance(client.receive(PATIENCE), bccnd.Message)
    except bccnd.BusError:
        return False


@pytest.mark.parametrize("redirections", ["<&- >&- 2>&-", "2>&-", "<&- 2>&-"])
def test_a_daemon_and_its_gateway_log_into_no_socket(tmp_path: Path, redirections: str) -> None:
    gateways = {"nng": {"listen": [f"tcp://127.0.0.1:{free_port()}"]}}
    daemon = Daemon(tmp_path / "a", {"gateways": gateways}, start=False)
    with running(redirections, str(BIN / "bccnd"), "--config", str(daemon.config)) as process:
        wait(lambda: serves(daemon.bus), "the daemon")
        assert streams(process.pid) == ["/dev/null"] * 3
        wait(lambda: b'"up": true' in daemon.tool("gateways", "--json").stdout, "the gateway")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert [streams(int(child))[1:] for child in children] == [["/dev/null"] * 2]
        process.send_signal(signal.SIGHUP)  # is logged, as is the end
        wait(lambda: daemon.metric("config_reloads_total", result="applied") == 1, "the reload")
        assert serves(daemon.bus)
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_a_recorder_and_its_converter_log_into_no_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    journal = tmp_path / "journal"
    with Daemon(tmp_path / "a", {"recorder": {"journal": str(journal), "rotate": 1}}) as daemon:
        recorder = Recorder(daemon, start=False)
        with running("<&- >&- 2>&-", *recorder.command) as process:
            with daemon.connect("a") as client:
                client.publish("a", b"x")
            wait(lambda: list(journal.rglob("*.parquet")), "a file of the journal")
            assert streams(process.pid) == ["/dev/null"] * 3
            process.terminate()
            assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("address", ["/dev/unix/abstract", "bus.sock"])
def test_sbusd_has_no_socket_there(tmp_path: Path, address: str) -> None:
    place = address if address.startswith("/") else str(tmp_path / address)
    with running("<&- >&- 2>&-", str(BIN / "bccn-sbusd"), "-f", "-a", place) as process:
        if place == address:
            wait(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) > 4 or process.poll() is not None, "its sockets")
        else:
            wait(lambda: serves(Path(place)), "the bus")
        assert process.poll() is None
        assert streams(process.pid) == ["/dev/null"] * 3
