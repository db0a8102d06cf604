"""Gateways beside a real daemon: started, killed, standing still, and never outliving it."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import PATIENCE, Daemon, wait
from tests.e2e.shared import gateways
from tests.support import free_port


def broker(folder: Path, **more: Any) -> dict[str, Any]:
    return {"gateways": {"broker": {"tcp": f"127.0.0.1:{free_port()}", "state": str(folder / "ids"), **more}}}


def up(daemon: Daemon) -> float:
    return daemon.metric("gateway_up", gateway="broker")


def starts(daemon: Daemon) -> float:
    return daemon.metric("gateway_starts_total", gateway="broker")


def serves(daemon: Daemon) -> bool:
    host, _, port = daemon.settings["gateways"]["broker"]["tcp"].rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False


def gone(pid: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def pid_of(daemon: Daemon) -> int:
    wait(lambda: gateways(daemon), "the gateway")  # it is started once the daemon is ready
    (pid,) = gateways(daemon)
    return pid


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for the tests after which its gateway is up again."""
    folder = tmp_path_factory.mktemp("daemon")
    with Daemon(folder / "a", broker(folder)) as one:
        wait(lambda: up(one) == 1, "the gateway")
        yield one


def test_a_killed_gateway_is_started_again_as_a_client(daemon: Daemon) -> None:
    first, before = pid_of(daemon), starts(daemon)
    with daemon.connect("a/") as client:
        os.kill(first, signal.SIGKILL)
        wait(lambda: starts(daemon) == before + 1, "another start")
        wait(lambda: up(daemon) == 1 and serves(daemon), "the gateway")
        client.publish("a/b", b"x")
        assert client.receive(PATIENCE) is not None
    pid = pid_of(daemon)
    assert pid != first
    assert "SIGKILL" in daemon.output()
    names = [json.loads(line)["identity"] for line in daemon.tool("clients", "--json").stdout.splitlines()]
    assert f"relay01/bccnd-broker/{pid}" in names
    (shown,) = [json.loads(line) for line in daemon.tool("gateways", "--json").stdout.splitlines()]
    assert (shown["gateway"], shown["up"], shown["pid"]) == ("broker", True, pid)
    assert b"broker" in daemon.tool("gateways").stdout


@pytest.mark.slow
def test_a_gateway_that_ends_while_the_file_is_bad_comes_back(daemon: Daemon) -> None:
    """Found by `make soak`: while an editor is at work, the file may be invalid for a while."""
    good, log = daemon.config.read_bytes(), len(daemon.output())
    daemon.config.write_bytes(b"bus: 7")
    os.kill(pid_of(daemon), signal.SIGKILL)
    wait(lambda: f"{daemon.config}" in daemon.output()[log:], "the refusal")
    daemon.config.write_bytes(good)
    wait(lambda: up(daemon) == 1, "the gateway")


@pytest.mark.slow
def test_a_gateway_that_stands_still_is_down(daemon: Daemon) -> None:
    os.kill(pid_of(daemon), signal.SIGSTOP)
    wait(lambda: up(daemon) == 0, "the silence")
    os.kill(pid_of(daemon), signal.SIGCONT)
    wait(lambda: up(daemon) == 1, "the gateway")


def test_a_gateway_never_outlives_a_killed_daemon(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "a", broker(tmp_path))
    pid = pid_of(daemon)
    daemon.kill()
    wait(lambda: gone(pid), "its end")
