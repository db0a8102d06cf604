"""Hosts joined by real wires: broadcast and multicast, IPv4 and IPv6, one segment and several."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bccnd
from tests.e2e.harness import KEY, PATIENCE, datagram, payloads, wait
from tests.e2e.network import Net, ip

pytestmark = pytest.mark.root

Segment = dict[str, Any]
BROADCAST: Segment = {"address": "10.77.0.255", "interface": "lan0"}
LIMITED: Segment = {"address": "255.255.255.255", "interface": "lan0"}
OTHER_WIRE: Segment = {"address": "10.78.0.255", "interface": "lan1"}
GROUP4: Segment = {"address": "239.1.2.3", "interface": "lan0"}
GROUP6: Segment = {"address": "ff02::bcc", "interface": "lan0"}


def heard(client: bccnd.Connection) -> bccnd.Message:
    event = client.receive(PATIENCE)
    assert isinstance(event, bccnd.Message)
    return event


@pytest.mark.parametrize(
    ("segment", "peer"),
    [
        (LIMITED, r"10\.77\.0\.1:5400"),
        ({**GROUP4, "bind": "239.1.2.3"}, r"10\.77\.0\.1:5400"),
        (GROUP6, r"\[fe80::[0-9a-f:]+%lan0\]:5400"),
        pytest.param({"address": "10.77.0.255"}, r"10\.77\.0\.1:5400", marks=pytest.mark.slow),
        pytest.param({**BROADCAST, "bind": "10.77.0.255"}, r"10\.77\.0\.1:5400", marks=pytest.mark.slow),
        pytest.param({**GROUP4, "bind": "0.0.0.0"}, r"10\.77\.0\.1:5400", marks=pytest.mark.slow),
        pytest.param({**GROUP6, "bind": "::"}, r"\[fe80::[0-9a-f:]+%lan0\]:5400", marks=pytest.mark.slow),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_two_daemons_and_a_plain_sender_share_any_kind_of_segment(
    tmp_path: Path, net: Net, segment: Segment, peer: str
) -> None:
    with (
        net.daemon("a", tmp_path, segment) as one,
        net.daemon("b", tmp_path, segment) as two,
        one.connect("x/") as here,
        two.connect("x/") as there,
    ):
        here.publish("x/y", b"over the wire")
        message = heard(there)
        assert (message.src, message.payload) == (here.identity(), b"over the wire")
        assert re.fullmatch(peer, message.peer)
        assert heard(here).peer == "local"
        # A reply to exactly that program, over the wire.
        there.send_to(message.src, b"and back")
        assert heard(here).payload == b"and back"
        if ":" in segment["address"]:  # the plain sender speaks no IPv6
            wait(lambda: one.verdicts() == two.verdicts() == {"accepted": 1, "looped": 1})
            return
        twice = datagram("host-c/plain/7", 1, "x/plain", b"from c", KEY)
        forged = datagram("host-c/plain/7", 2, "x/plain", b"forged", b"not the key of this segment")
        net.send("c", segment["address"], twice, twice, forged, interface="lan0")
        for client in (here, there):
            message = heard(client)
            assert (message.src, message.payload) == ("host-c/plain/7", b"from c")
            assert message.peer.startswith("10.77.0.3:")
        common = {"accepted": 2, "duplicate": 1, "integrity_failed": 1, "looped": 1}
        wait(lambda: one.verdicts() == two.verdicts() == common)


def test_what_comes_over_several_segments_is_one_message_from_one_identity(tmp_path: Path, net: Net) -> None:
    segments = [BROADCAST, OTHER_WIRE, GROUP4, GROUP6]
    with net.daemon("a", tmp_path, *segments) as one, net.daemon("b", tmp_path, *segments) as two:
        with one.connect("x") as here, two.connect("x") as there:
            for number in range(10):
                here.publish("x", b"%d" % number)
            assert payloads(there, 10) == [b"%d" % number for number in range(10)]
            assert there.receive(0.2) is None
        wait(lambda: two.verdicts() == {"accepted": 10, "duplicate": 30})
        wait(lambda: one.verdicts() == {"looped": 40})
        for label in ("lan0/10.77.0.255#5400", "lan1/10.78.0.255#5400", "lan0/239.1.2.3#5400", "lan0/ff02--bcc#5400"):
            assert one.metric("datagrams_sent_total", segment=label) == 10
            assert two.metric("datagrams_received_total", segment=label) == 10
        assert two.metric("sources") == 1


def test_one_segment_carries_on_when_another_is_cut(tmp_path: Path, net: Net) -> None:
    with (
        net.daemon("a", tmp_path, BROADCAST, OTHER_WIRE) as one,
        net.daemon("b", tmp_path, BROADCAST, OTHER_WIRE) as two,
    ):
        with one.connect() as here, two.connect("x") as there:
            here.publish("x", b"both")
            assert payloads(there, 1) == [b"both"]
            ip("-n", net.switch, "link", "set", "tob0", "nomaster")
            for number in range(5):
                here.publish("x", b"%d" % number)
            assert payloads(there, 5) == [b"%d" % number for number in range(5)]
        assert two.metric("messages_lost_total") == two.metric("messages_missing") == 0


@pytest.mark.slow
def test_multicast_passes_as_many_routers_as_it_may(tmp_path: Path, net: Net) -> None:
    listen = "import socket as s, struct; k=s.socket(s.AF_INET, s.SOCK_DGRAM); k.bind(('239.1.2.3', 5400));"
    listen += "k.setsockopt(0, s.IP_ADD_MEMBERSHIP, s.inet_aton('239.1.2.3')+s.inet_aton('10.77.0.2'));"
    listen += "k.setsockopt(0, 12, 1); print('listening', flush=True);"  # IP_RECVTTL
    listen += "print(*(struct.unpack('i', c[2])[0] for c in k.recvmsg(2000, 100)[1]))"
    for host, hops in (("a", 1), ("c", 7)):
        with (
            net.daemon(host, tmp_path, {**GROUP4, "hop_limit": hops}) as one,
            one.connect() as client,
            subprocess.Popen([*net.on("b"), sys.executable, "-c", listen], stdout=subprocess.PIPE) as listener,
        ):
            assert listener.stdout is not None
            assert listener.stdout.readline() == b"listening\n"
            client.publish("x", b"far")
            assert listener.stdout.readline() == b"%d\n" % hops


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
