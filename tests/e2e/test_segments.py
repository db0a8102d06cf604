"""Several segments at once, broadcast and multicast, IPv4 and IPv6: real wires between real network stacks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bccnd
from tests.e2e.harness import PATIENCE, payloads, wait
from tests.e2e.network import Net, ip

pytestmark = pytest.mark.root

Segment = dict[str, Any]
BROADCAST: Segment = {"address": "10.77.0.255", "interface": "lan0"}
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
        (BROADCAST, r"10\.77\.0\.1:5400"),
        ({**GROUP4, "bind": "239.1.2.3"}, r"10\.77\.0\.1:5400"),
        (GROUP6, r"\[fe80::[0-9a-f:]+%lan0\]:5400"),
        pytest.param(GROUP4, r"10\.77\.0\.1:5400", marks=pytest.mark.slow),
        pytest.param({**GROUP4, "bind": "0.0.0.0"}, r"10\.77\.0\.1:5400", marks=pytest.mark.slow),
        pytest.param({**GROUP6, "bind": "::"}, r"\[fe80::[0-9a-f:]+%lan0\]:5400", marks=pytest.mark.slow),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_two_hosts_talk_over_any_kind_of_segment(tmp_path: Path, net: Net, segment: dict[str, Any], peer: str) -> None:
    with net.daemon("a", tmp_path, segment) as one, net.daemon("b", tmp_path, segment) as two:
        with one.connect("x/") as here, two.connect("x/") as there:
            here.publish("x/y", b"over the wire")
            message = heard(there)
            assert (message.src, message.payload) == (here.identity(), b"over the wire")
            assert re.fullmatch(peer, message.peer)
            assert heard(here).peer == "local"
            there.send_to(message.src, b"and back")
            assert heard(here).payload == b"and back"
        wait(lambda: one.verdicts() == two.verdicts() == {"accepted": 1, "looped": 1})


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
