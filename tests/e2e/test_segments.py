"""Hosts joined by real wires: broadcast and multicast, IPv4 and IPv6, one segment and several."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import bccnd
from tests.e2e.harness import KEY, PATIENCE, datagram, payloads, wait
from tests.e2e.network import Net

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
        pytest.param({**GROUP4, "bind": "239.1.2.3"}, r"10\.77\.0\.1:5400", marks=pytest.mark.slow),
        (GROUP6, r"\[fe80::[0-9a-f:]+%lan0\]:5400"),
        pytest.param({"address": "10.77.0.255"}, r"10\.77\.0\.1:5400", marks=pytest.mark.slow),
        pytest.param({**BROADCAST, "bind": "10.77.0.255"}, r"10\.77\.0\.1:5400", marks=pytest.mark.slow),
        pytest.param({**GROUP4, "bind": "0.0.0.0"}, r"10\.77\.0\.1:5400", marks=pytest.mark.slow),
        pytest.param({**GROUP6, "bind": "::"}, r"\[fe80::[0-9a-f:]+%lan0\]:5400", marks=pytest.mark.slow),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_daemons_and_a_plain_sender_share_any_segment(tmp_path: Path, net: Net, segment: Segment, peer: str) -> None:
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


def test_what_comes_over_several_segments_is_one_message(tmp_path: Path, net: Net) -> None:
    segments = [BROADCAST, OTHER_WIRE, GROUP4, GROUP6]
    with net.daemon("a", tmp_path, *segments) as one, net.daemon("b", tmp_path, *segments) as two:
        with one.connect("x") as here, two.connect("x") as there:
            for number in range(10):
                here.publish("x", b"%d" % number)
            wait(lambda: two.verdicts() == {"accepted": 10, "duplicate": 30})
            there.publish("x", b"last")
            assert payloads(there, 11) == [*(b"%d" % number for number in range(10)), b"last"]
        wait(lambda: one.verdicts() == {"looped": 40, "accepted": 1, "duplicate": 3})
        for label in ("lan0/10.77.0.255#5400", "lan1/10.78.0.255#5400", "lan0/239.1.2.3#5400", "lan0/ff02--bcc#5400"):
            assert one.metric("datagrams_sent_total", segment=label) == 10
            assert two.metric("datagrams_received_total", segment=label) == 11
        assert two.metric("sources") == 1
