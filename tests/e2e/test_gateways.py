"""Gateways beside a real daemon: started, killed, reconfigured, missing, and never outliving it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import BIN, PATIENCE, Daemon, wait
from tests.e2e.shared import gateways
from tests.support import free_port


def broker(**more: Any) -> dict[str, Any]:
    return {"gateways": {"broker": {"tcp": f"127.0.0.1:{free_port()}", **more}}}


def serves(daemon: Daemon) -> bool:
    host, _, port = daemon.settings["gateways"]["broker"]["tcp"].rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False


def gone(pid: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for the tests after which its gateway is up again."""
    folder = tmp_path_factory.mktemp("daemon")
    with Daemon(folder / "a", broker(state=str(folder / "ids"))) as one:
        wait(lambda: one.metric("gateway_up", gateway="broker") == 1, "the gateway")
        yield one


def pid_of(daemon: Daemon) -> int:
    wait(lambda: gateways(daemon), "the gateway")  # it is started once the daemon is ready
    (pid,) = gateways(daemon)
    return pid


def test_it_is_a_client_like_others_under_a_name_of_its_own(daemon: Daemon) -> None:
    pid = pid_of(daemon)
    names = [json.loads(line)["identity"] for line in daemon.tool("clients", "--json").stdout.splitlines()]
    assert f"relay01/bccnd-broker/{pid}" in names
    (shown,) = [json.loads(line) for line in daemon.tool("gateways", "--json").stdout.splitlines()]
    assert (shown["gateway"], shown["up"], shown["pid"]) == ("broker", True, pid)
    assert daemon.metric("gateway_starts_total", gateway="broker") >= 1
    text = daemon.tool("gateways").stdout.decode()
    assert [line.split()[:2] for line in text.splitlines()] == [["gateway", "state"], ["broker", "up"]]


def test_one_that_is_killed_is_there_again_and_the_daemon_has_not_noticed(daemon: Daemon) -> None:
    first = pid_of(daemon)
    starts = daemon.metric("gateway_starts_total", gateway="broker")
    with daemon.connect("a/") as client:
        os.kill(first, signal.SIGKILL)
        wait(lambda: daemon.metric("gateway_starts_total", gateway="broker") == starts + 1, "another start")
        wait(lambda: daemon.metric("gateway_up", gateway="broker") == 1, "the gateway")
        wait(lambda: serves(daemon), "its port")
        client.publish("a/b", b"x")
        assert client.receive(PATIENCE) is not None
    assert pid_of(daemon) != first
    assert "gateway broker has ended (SIGKILL)" in daemon.output()


@pytest.mark.slow
def test_one_that_ends_while_the_file_is_in_bad_order_is_there_again_once_it_is_not(daemon: Daemon) -> None:
    """Found by `make soak`: whoever edits the file has it in bad order for a while."""
    good = daemon.config.read_bytes()
    daemon.config.write_bytes(b"bus: 7")
    os.kill(pid_of(daemon), signal.SIGKILL)
    wait(lambda: "bus: must be keys and values" in daemon.output(), "the refusal")
    daemon.config.write_bytes(good)
    wait(lambda: daemon.metric("gateway_up", gateway="broker") == 1, "the gateway")
    assert "(exit code 1)" in daemon.output()


@pytest.mark.slow
def test_one_that_stands_still_is_down_and_costs_nobody_anything(daemon: Daemon) -> None:
    os.kill(pid_of(daemon), signal.SIGSTOP)
    wait(lambda: daemon.metric("gateway_up", gateway="broker") == 0, "the silence")
    with daemon.connect("a/") as client:
        client.publish("a/b", b"x")
        assert client.receive(PATIENCE) is not None
    os.kill(pid_of(daemon), signal.SIGCONT)
    wait(lambda: daemon.metric("gateway_up", gateway="broker") == 1, "the gateway")


@pytest.mark.parametrize("how", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_it_never_outlives_the_daemon(tmp_path: Path, how: int) -> None:
    daemon = Daemon(tmp_path / "a", broker(state=str(tmp_path / "ids")))
    pid = pid_of(daemon)
    daemon.kill(how)
    wait(lambda: gone(pid), "its end")


@pytest.mark.slow
def test_a_reload_starts_changes_and_ends_it_and_leaves_it_alone_otherwise(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a", broker(state=str(tmp_path / "ids"))) as daemon:
        wait(lambda: daemon.metric("gateway_up", gateway="broker") == 1, "the gateway")
        first = pid_of(daemon)
        daemon.configure({"dedup": {"late": "deliver"}})
        daemon.reload()
        assert pid_of(daemon) == first
        daemon.configure(broker(state=str(daemon.folder / "ids"), max_ids=7))
        daemon.reload()
        wait(lambda: serves(daemon), "the other port")
        wait(lambda: first not in gateways(daemon), "the end of the first one")
        second = pid_of(daemon)
        assert daemon.metric("gateway_starts_total", gateway="broker") == 2
        daemon.settings["gateways"] = {}
        daemon.configure({})
        daemon.reload()
        wait(lambda: gone(second), "its end")
        wait(lambda: not gateways(daemon), "the reaping")
        assert "has ended" not in daemon.output()


def test_where_gateways_are_services_of_their_own_the_daemon_starts_none_and_counts_starts(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "a", broker(state=str(tmp_path / "ids")), start=False)
    daemon.options = ["--no-gateways"]
    daemon.start()
    with daemon:
        daemon.reload()  # by then it would have been started
        assert gateways(daemon) == []
        command = [sys.executable, str(BIN / "bccnd"), "--gateway", "broker", "--config", str(daemon.config)]
        for starts in (1, 2):
            assert daemon.metric("gateway_starts_total", gateway="broker") == starts - 1
            with subprocess.Popen(command) as gateway:
                wait(lambda: daemon.metric("gateway_up", gateway="broker") == 1, "the gateway")
                assert daemon.metric("gateway_starts_total", gateway="broker") == starts
                gateway.kill()
            wait(lambda: daemon.metric("gateway_up", gateway="broker") == 0, "its end")


def test_one_that_is_not_configured_ends_at_once(tmp_path: Path) -> None:
    config = tmp_path / "bccnd.yaml"
    config.write_text("host: relay01\n")
    for gateway in ("nng", "broker"):
        command = [sys.executable, str(BIN / "bccnd"), "--gateway", gateway, "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert f"no gateways.{gateway}" in done.stderr
        assert "Traceback" not in done.stderr
