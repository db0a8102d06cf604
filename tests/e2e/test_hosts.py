"""Several hosts: network namespaces joined by a bridge, with real broadcast between them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bccnd
from tests.e2e.harness import KEY, PATIENCE, Daemon, datagram, payloads, wait
from tests.e2e.test_start import refused

pytestmark = pytest.mark.root

PORT = 5400
#: a plain BCCN program: sends what it reads in hex, a line each, to an address
SENDER = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
if sys.argv[2:]: sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, sys.argv[2].encode())
for line in sys.stdin: sock.sendto(bytes.fromhex(line), (sys.argv[1], 5400))
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Net:
    """Namespaces ``a``, ``b`` and ``c`` at 10.77.0.1, .2 and .3, with their ends of the wires called ``lan0``."""

    def __init__(self) -> None:
        tag = f"bc{os.getpid() % 100_000}"
        self.switch = f"{tag}sw"
        self.names = {host: f"{tag}{host}" for host in "abc"}

    def open(self) -> None:
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for number, (host, name) in enumerate(self.names.items(), start=1):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "add", "lan0", "type", "veth", "peer", "name", f"to{host}", "netns", self.switch)
            ip("-n", self.switch, "link", "set", f"to{host}", "master", "br0", "up")
            ip("-n", name, "address", "add", f"10.77.0.{number}/24", "brd", "+", "dev", "lan0")
            ip("-n", name, "link", "set", "lan0", "up")

    def close(self) -> None:
        for name in [*self.names.values(), self.switch]:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    def on(self, host: str) -> list[str]:
        """What runs a command on a host."""
        return ["ip", "netns", "exec", self.names[host]]

    def send(self, host: str, address: str, *datagrams: bytes, interface: str = "") -> None:
        """Send datagrams from a plain program on a host."""
        command = [*self.on(host), sys.executable, "-c", SENDER, address, *([interface] if interface else [])]
        text = "\n".join(one.hex() for one in datagrams).encode()
        subprocess.run(command, input=text, check=True, timeout=PATIENCE)

    def daemon(
        self, host: str, folder: Path, segment: dict[str, object] | None = None, *, start: bool = True
    ) -> Daemon:
        """A daemon on a host, called like the host."""
        daemon = Daemon(folder / host, prefix=self.on(host), start=False)
        daemon.configure(
            {
                "host": f"host-{host}",
                "segments": [segment or {"address": "10.77.0.255"}],
                "metrics": {"listen": "127.0.0.1:9540"},
                "integrity": daemon.with_key(KEY),
            }
        )
        if start:
            daemon.start()
        return daemon


@pytest.fixture
def net() -> Iterator[Net]:
    net = Net()
    try:
        try:
            net.open()
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or str(error).encode()
            reason = f"cannot make network namespaces here (it takes root and iproute2): {said.decode().strip()}"
            assert "CI" not in os.environ, reason
            pytest.skip(reason)
        yield net
    finally:
        net.close()


@pytest.mark.parametrize(
    "segment",
    [
        {"address": "10.77.0.255"},
        {"address": "10.77.0.255", "bind": "10.77.0.255"},
        {"address": "255.255.255.255", "interface": "lan0"},
    ],
    ids=["directed", "bound to the broadcast address", "limited with interface"],
)
def test_two_daemons_and_a_plain_sender_share_a_segment(tmp_path: Path, net: Net, segment: dict[str, object]) -> None:
    address = str(segment["address"])
    with (
        net.daemon("a", tmp_path, segment) as one,
        net.daemon("b", tmp_path, segment) as two,
        one.connect("x/") as here,
        two.connect("x/") as there,
    ):
        twice = datagram("host-c/plain/7", 1, "x/plain", b"from c", KEY)
        forged = datagram("host-c/plain/7", 2, "x/plain", b"forged", b"not the key of this segment")
        net.send("c", address, twice, twice, forged, interface="lan0")
        for client in (here, there):
            message = client.receive(PATIENCE)
            assert isinstance(message, bccnd.Message)
            assert (message.src, message.payload) == ("host-c/plain/7", b"from c")
            assert message.peer.startswith("10.77.0.3:")
        here.publish("x/y", b"from a")
        message = there.receive(PATIENCE)
        assert isinstance(message, bccnd.Message)
        assert (message.src, message.payload) == (here.identity(), b"from a")
        assert message.peer == f"10.77.0.1:{PORT}"
        assert payloads(here, 2, timeout=0.2) == [b"from a"]
        # A reply to exactly that program, over the wire.
        there.send_to(message.src, b"for you")
        assert payloads(here, 1) == [b"for you"]
        common = {"accepted": 2, "duplicate": 1, "integrity_failed": 1, "looped": 1}
        wait(lambda: one.verdicts() == common and two.verdicts() == common)


def test_what_is_lost_on_the_way_to_one_host_is_counted_there_only(tmp_path: Path, net: Net) -> None:
    quick = {"dedup": {"horizon": "500ms"}}
    one, two = (net.daemon(host, tmp_path, start=False) for host in "ab")
    for daemon in (one, two):
        daemon.configure(quick)
        daemon.start()
    with one, two, one.connect("x") as here, two.connect("x") as there:
        messages = [datagram("host-c/plain/7", seq, "x", b"%d" % seq, KEY) for seq in range(10)]
        net.send("c", "10.77.0.255", *messages[:4])
        assert payloads(there, 4) == [b"0", b"1", b"2", b"3"]
        ip("-n", net.switch, "link", "set", "tob", "nomaster")
        net.send("c", "10.77.0.255", *messages[4:7])
        assert payloads(here, 7) == [b"%d" % seq for seq in range(7)]
        ip("-n", net.switch, "link", "set", "tob", "master", "br0")

        def the_rest_arrives() -> bool:  # the bridge may need a moment to forward again
            net.send("c", "10.77.0.255", *messages[7:])
            return payloads(there, 3, 0.2) == [b"7", b"8", b"9"]

        wait(the_rest_arrives)
        wait(lambda: two.metric("messages_lost_total") == 3)
        assert one.metric("messages_lost_total") == 0


def test_limited_broadcast_without_a_route_asks_for_the_interface(tmp_path: Path, net: Net) -> None:
    said = refused(net.daemon("a", tmp_path, {"address": "255.255.255.255"}, start=False))
    assert "no way to 255.255.255.255" in said
    assert "interface:" in said


def test_a_host_address_is_no_segment(tmp_path: Path, net: Net) -> None:
    assert "not a broadcast address" in refused(net.daemon("a", tmp_path, {"address": "10.77.0.1"}, start=False))
    said = refused(net.daemon("b", tmp_path, {"address": "10.77.0.255", "bind": "10.77.0.2"}, start=False))
    assert "receives no broadcast" in said


def test_a_segment_that_goes_away_is_counted_and_comes_back(tmp_path: Path, net: Net) -> None:
    with net.daemon("a", tmp_path) as daemon, daemon.connect("x") as client:
        ip("-n", net.names["a"], "link", "set", "lan0", "down")
        client.publish("x", b"one")
        assert [refusal.reason for refusal in client.sync()] == ["send_failed"]
        assert payloads(client, 1) == [b"one"]
        assert daemon.metric("send_errors_total") == 1
        assert "cannot broadcast" in daemon.said()
        ip("-n", net.names["a"], "link", "set", "lan0", "up")
        client.publish("x", b"two")
        assert client.sync() == []
        wait(lambda: daemon.verdicts() == {"looped": 1})
