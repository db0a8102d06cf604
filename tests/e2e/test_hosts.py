"""Several hosts: network namespaces joined by a bridge, with real broadcast between them."""

from __future__ import annotations

from pathlib import Path

import pytest

import bccnd
from tests.e2e.harness import KEY, PATIENCE, datagram, payloads, wait
from tests.e2e.network import PORT, Net, ip

pytestmark = pytest.mark.root


@pytest.mark.parametrize(
    "segment",
    [
        pytest.param({"address": "10.77.0.255"}, marks=pytest.mark.slow),
        pytest.param({"address": "10.77.0.255", "bind": "10.77.0.255"}, marks=pytest.mark.slow),
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
        ip("-n", net.switch, "link", "set", "tob0", "nomaster")
        net.send("c", "10.77.0.255", *messages[4:7])
        assert payloads(here, 7) == [b"%d" % seq for seq in range(7)]
        ip("-n", net.switch, "link", "set", "tob0", "master", "br0")

        def the_rest_arrives() -> bool:  # the bridge may need a moment to forward again
            net.send("c", "10.77.0.255", *messages[7:])
            return payloads(there, 3, 0.2) == [b"7", b"8", b"9"]

        wait(the_rest_arrives)
        wait(lambda: two.metric("messages_lost_total") == 3)
        assert one.metric("messages_lost_total") == 0


@pytest.mark.slow
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
