"""Link-local addresses of IPv6, which need their interface: whatever listens or dials keeps it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bccnd
from bccnd.doctor.probe_daemon import get_metrics
from tests.e2e.harness import PATIENCE, Daemon, wait
from tests.support import cannot_here, free_port

pytestmark = [pytest.mark.root, pytest.mark.slow]

HOST = "fe80::1%bcn0"


@pytest.fixture(autouse=True)
def wire() -> Iterator[None]:
    """The interfaces ``bcn0`` and ``bcn1``, a wire between this host and itself."""
    try:
        for command in (
            "link add bcn0 type veth peer name bcn1",
            "link set bcn0 up",
            "link set bcn1 up",
            "address add fe80::1/64 dev bcn0 nodad",
            "address add fe80::2/64 dev bcn1 nodad",
        ):
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        cannot_here(f"cannot make interfaces: {getattr(error, 'stderr', error)!r}")
    yield
    subprocess.run(["ip", "link", "delete", "bcn0"], check=True)


def gateways(daemon: Daemon) -> dict[str, Any]:
    """What the daemon knows of its gateways, by name."""
    rows = daemon.tool("gateways", "--json").stdout.splitlines()
    return {row["gateway"]: row for row in map(json.loads, rows)}


def test_listeners_and_diallers_use_the_interface(tmp_path: Path) -> None:
    pages, link, broker = free_port(), free_port(), free_port()
    url = f"tcp://[{HOST}]:{link}"
    listening = {"nng": {"listen": [url]}, "broker": {"tcp": f"[{HOST}]:{broker}", "udp": f"[{HOST}]:{broker}"}}
    with (
        Daemon(tmp_path / "a", {"gateways": listening, "metrics": {"listen": f"[{HOST}]:{pages}"}}) as one,
        Daemon(tmp_path / "b", {"gateways": {"nng": {"dial": [url]}}}) as two,
    ):
        get_metrics(HOST, pages)  # as `bccn doctor`
        with pytest.raises(OSError):
            get_metrics("fe80::2%bcn1", pages)
        wait(lambda: gateways(two)["nng"]["peers_connected"] == 1, f"the link:\n{two.output()}")
        (peer,) = gateways(two)["nng"]["peers"]
        assert peer["peer"] == f"[{HOST}]:{link}"
        wait(lambda: gateways(one)["broker"]["up"], f"the broker:\n{one.output()}")
        # Whoever connects from there is named with the interface, too.
        wait(lambda: gateways(one)["nng"]["peers"], "the peer")
        assert gateways(one)["nng"]["peers"][0]["peer"].startswith(f"[{HOST}]:")


def test_a_program_names_the_interface_with_the_group() -> None:
    port = free_port()
    with (
        bccnd.Endpoint("a/b/1", "ff02::bcc%bcn0", port) as one,
        bccnd.Endpoint("a/b/2", "ff02::bcc", port, interface="bcn1") as two,
    ):
        one.send("x", b"over the wire")
        message = two.recv(PATIENCE)
        assert message is not None
        assert message.payload == b"over the wire"
    with pytest.raises(bccnd.EndpointError, match="bcn0"):
        bccnd.Endpoint("a/b/1", "ff02::bcc%bcn0", port, interface="bcn1")
