"""Segments joined by a link: real daemons, on loopback segments or in networks of their own."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import bccnd
from tests.e2e.harness import PATIENCE, Daemon, Wire, datagram, payloads, wait
from tests.e2e.network import Net
from tests.e2e.shared import await_link, has_peers
from tests.support import cannot_here, free_port


def place() -> str:
    return f"tcp://127.0.0.1:{free_port()}"


def linked(count: int, *daemons: Daemon) -> None:
    """Wait until each daemon's gateway has so many peers."""
    for daemon in daemons:
        wait(partial(has_peers, daemon, count), f"{count} peers:\n{daemon.output()}")


@contextmanager
def clients(*asked: tuple[Daemon, str]) -> Iterator[list[bccnd.Connection]]:
    """A client of each daemon, with a pattern that is in force."""
    with ExitStack() as stack:
        yield [stack.enter_context(daemon.connect(pattern)) for daemon, pattern in asked]


@contextmanager
def pair(folder: Path, *, settings: dict[str, Any] | None = None) -> Iterator[tuple[Daemon, Daemon]]:
    """Two daemons, each on a segment of its own; the first listens and the second dials."""
    nng = {"nng": {"listen": [where := place()]}}, {"nng": {"dial": [where]}}
    ours = settings or {}
    made = [Daemon(folder / str(n), {"host": f"host{n}", "gateways": nng[n], **ours}, start=False) for n in (0, 1)]
    with made[0] as a, made[1] as b:
        a.start()
        b.start()
        linked(1, a, b)
        yield a, b


def test_each_message_arrives_once_on_the_other_segment(tmp_path: Path) -> None:
    """And both segments are one fleet, whose reports go over the link."""
    with pair(tmp_path, settings={"reports": {"interval": 0.5}}) as (a, b):
        asked = ((a, "x/"), (a, "x/"), (b, "x/"), (b, "x/"))
        with clients(*asked) as programs, Wire(a.port) as on_a, Wire(b.port) as on_b:
            sent = [datagram("far/p/1", seq, "x/y", b"from the segment %d" % seq) for seq in range(1, 101)]
            on_a.send(*sent)
            # Verbatim, under its sender's own name and number.
            assert [on_b.receive(b"from the segment") for _ in sent] == sent
            programs[0].publish("x/y", b"from a client")
            ours = on_a.receive(b"from a client")
            assert on_b.receive(b"from a client") == ours
            on_b.send(datagram("near/p/1", 1, "x/y", b"and back"))
            assert on_a.receive(b"and back") == datagram("near/p/1", 1, "x/y", b"and back")
            programs[0].publish("x/y", b"last")
            for client in programs:
                got = payloads(client, 103)
                assert (len(set(got)), got[-1]) == (103, b"last")
            # Nothing comes back to where it was.
            on_b.receive(b"|last")
            rest = Counter(one for one in (*on_a.rest(), *on_b.rest()) if b"x/y" in one)
            assert [one for one, times in rest.items() if times > 1] == []
        wait(lambda: a.metric("gateway_messages_total", gateway="nng", direction="out") >= 102, "the messages")
        assert a.metric("gateway_bytes_total", gateway="nng", direction="in") > 0
        assert b"tcp://127.0.0.1:" in b.tool("gateways").stdout
        await_link(a, "host1", "far", received=100)
        assert a.metric("source_jumps_total") == b.metric("source_jumps_total") == 0


@contextmanager
def two_hosts(net: Net, folder: Path) -> Iterator[tuple[Daemon, Daemon]]:
    """Two linked hosts whose segments are not the wire that the link uses."""
    daemons = []
    for host, address, interface, way in (("a", "10.77.0.255", "lan0", "listen"), ("b", "10.78.0.255", "lan1", "dial")):
        segment: dict[str, object] = {"address": address, "interface": interface, "bind": "0.0.0.0"}
        daemons.append(net.daemon(host, folder, segment, start=False))
        daemons[-1].configure({"gateways": {"nng": {way: ["tcp://10.77.0.1:5402"]}}})
    with daemons[0] as a, daemons[1] as b:
        a.start()
        b.start()
        linked(1, a, b)
        yield a, b


def ages(received: Iterable[bytes]) -> list[float]:
    """Seconds since messages were sent, which say when that was."""
    return [(time.monotonic_ns() - int(payload)) * 1e-9 for payload in received]


@pytest.mark.root
@pytest.mark.slow
def test_a_link_that_stood_still_brings_nothing_late(net: Net, tmp_path: Path) -> None:
    """The way between two hosts is cut without either being told, and mended."""
    if shutil.which("nft") is None:
        cannot_here("there is no nft: apt-get install nftables")
    with two_hosts(net, tmp_path) as (a, b), ExitStack() as stack:
        client, sender = stack.enter_context(clients((b, "x/"), (a, "none")))
        sender.publish("x/y", b"%d" % time.monotonic_ns())
        assert payloads(client, 1)
        net.run("b", "nft", "add table inet cut")
        net.run("b", "nft", "add chain inet cut in { type filter hook prerouting priority -300; }")
        net.run("b", "nft", "add chain inet cut out { type filter hook output priority -300; }")
        for length in (1.0, 5.0):
            for way in ("in", "out"):
                net.run("b", "nft", f"add rule inet cut {way} tcp dport 5402 drop")
                net.run("b", "nft", f"add rule inet cut {way} tcp sport 5402 drop")
            deadline = time.monotonic() + length
            while time.monotonic() < deadline:
                sender.publish("x/y", b"%d" % time.monotonic_ns())
                time.sleep(0.02)
            if length > 2:  # both ends have noticed by themselves
                assert a.metric("gateway_peers", gateway="nng") == 0
            net.run("b", "nft", "flush chain inet cut in")
            net.run("b", "nft", "flush chain inet cut out")
            found: list[float] = []
            deadline = time.monotonic() + PATIENCE
            while not found or min(found) > 0.2:  # until it flows again
                assert time.monotonic() < deadline, a.output() + b.output()
                sender.publish("x/y", b"%d" % time.monotonic_ns())
                found += ages(payloads(client, 100, timeout=0.05))
            # Nothing is as old as the longer cut: a copy may be 2 s old, and a busy machine adds to that.
            assert max(found) < 4.5, (length, max(found))
        linked(1, a, b)
