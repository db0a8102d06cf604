"""Links on a real bus: rights of carriers, what becomes of messages from links, reports of gateways."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from bccnd.bus.clients.access_rules import Rule, admit_all
from bccnd.bus.requests.gateway_links import GatewayLinks
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.trust.integrity import make_checker
from bccnd.core.wire import frames
from bccnd.core.wire.bccn1 import build
from bccnd.core.wire.verdicts import NAMES
from bccnd.gateways.status import read_report
from tests.support import ANN, BOB, Hub, Peer, refusals


class Bridge:
    """A hub with links."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.broadcast: list[bytes] = []
        self.ingress = Ingress(make_checker("none", ()), hub.sources, AnonymousDedup(hub.sources.limits), hub.routes)
        sinks = (hub.bus.fanout, ["nng"], read_report, self.broadcast.append)
        self.links = hub.bus.requests.links = GatewayLinks(self.ingress, *sinks, copies=1)

    def verdicts(self) -> dict[str, int]:
        (counters,) = self.links.counters
        return {NAMES[number]: count for number, count in enumerate(counters.verdicts) if count}


@pytest.fixture
def bridge(hub: Hub) -> Bridge:
    return Bridge(hub)


def datagram(seq: int, chan: bytes = b"a/b", src: bytes = b"far/p/1") -> bytes:
    return build(b"%b:%d:%b|x" % (src, seq, chan), b"")


def brought(raw: bytes, *, way: int = 7, age: float = 0.0, link: str = "nng") -> bytes:
    return frames.arrived(link, way, time.time_ns() - int(age * 1e9), "192.0.2.1:5410", raw)


def taken(peer: Peer) -> list[tuple[int, bytes]]:
    """What a carrier is given to carry."""
    found = []
    for packet in peer.all():
        verb, key, payload = frames.read(packet)
        assert (verb, key) == (frames.MSG, frames.LINK)
        found.append(frames.read_forwarded(payload))
    return found


def test_local_messages_are_carried_once_with_their_number(bridge: Bridge) -> None:
    carrier, client = bridge.hub.connect(frames.LINK), bridge.hub.connect()
    client.publish(b"a/b", b"1", b"2")
    client.publish(b"!/mine", b"stays")
    client.publish(b"no channel", b"stays")
    assert taken(carrier) == [(0, raw) for raw in bridge.hub.sent]
    assert len(bridge.hub.sent) == 2
    client.send(b"CMSG !/bccn/local/on")
    client.publish(b"a/b", b"stays")
    assert taken(carrier) == []


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 10**20 - 1])
def test_no_number_of_a_gateway_is_a_bug(bridge: Bridge, number: int) -> None:
    carrier, client = bridge.hub.connect(frames.LINK), bridge.hub.connect(b"a/")
    client.send(b"CMSG !/bccn/meta/on")
    carrier.send(frames.arrived("nng", 7, number, "192.0.2.1:5410", datagram(1)))
    (packet,) = client.all()
    received_ns = frames.read_meta(frames.read(packet)[2])[2]
    assert received_ns <= time.time_ns()  # it is not in the future
    carrier.send(frames.arrived("nng", number, 5, "192.0.2.1:5410", datagram(2)))
    assert len(client.all()) == 1
    assert bridge.verdicts() == {"accepted": 2}


def test_datagrams_of_a_link_go_everywhere_else(bridge: Bridge) -> None:
    carrier, client = bridge.hub.connect(frames.LINK), bridge.hub.connect(b"a/")
    raw = datagram(1)
    carrier.send(brought(raw), brought(raw, way=8), brought(datagram(2, b"c")), brought(b"BCCN1[9]x"))
    assert taken(carrier) == [(7, raw), (7, datagram(2, b"c"))]
    assert client.all() == [b"MSG a/b\0x"]
    assert bridge.broadcast == [raw, datagram(2, b"c")]
    assert bridge.verdicts() == {"accepted": 2, "duplicate": 1, "length_mismatch": 1}


def test_datagrams_too_long_on_their_way_stay_here(bridge: Bridge) -> None:
    carrier, client = bridge.hub.connect(frames.LINK), bridge.hub.connect(b"a/")
    carrier.send(brought(datagram(1), age=2.5), brought(datagram(2), age=1.0), brought(datagram(2), age=5.0))
    carrier.send(brought(datagram(3), age=-3600))  # the gateway's clock is ahead
    assert taken(carrier) == [(7, datagram(2)), (7, datagram(3))]
    assert client.all() == [b"MSG a/b\0x"] * 3
    assert bridge.broadcast == [datagram(2), datagram(3)]
    assert bridge.links.late == 1


def test_nothing_has_arrived_before_the_boot(bridge: Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    carrier = bridge.hub.connect(frames.LINK)
    monkeypatch.setattr(time, "monotonic", lambda: 20.0)
    raw = brought(datagram(1), age=50.0)
    bridge.links.bring(raw.partition(b"\0")[2])
    source = bridge.hub.sources.get(b"far/p/1")
    assert source is not None
    assert source.heard == 0.0
    assert taken(carrier) == []


def test_malformed_packets_and_other_links_are_refused(bridge: Bridge) -> None:
    carrier = bridge.hub.connect(frames.LINK)
    malformed = [b"MSG !/link/\0", b"MSG !/link/\0nng:0:1:x:1|y", b"MSG !/link/\0nng:1:1:x"]
    for packet in (*malformed, brought(b"x", link="other")):
        carrier.send(packet)
        assert refusals(carrier.all()) == [(b"no_link", frames.LINK)]
    assert bridge.verdicts() == {}


def test_carrying_takes_a_right(tmp_path: Path) -> None:
    rules = [Rule(uid=ANN.uid, link=True), Rule(uid=BOB.uid, link=False, tap=True)]
    with Hub(tmp_path, rules=rules, others=[("path", admit_all)]) as hub:
        bridge = Bridge(hub)
        ann, bob = hub.connect(who=ANN), hub.connect(who=BOB)
        for peer in (ann, bob):
            peer.send(b"SUB !/link/", brought(datagram(peer.client.number)), frames.control(frames.GATEWAY, b"x"))
        assert refusals(ann.all())[0] == (b"bad_report", frames.GATEWAY)
        refused = [(b"not_permitted", key) for key in (frames.LINK, frames.LINK, frames.GATEWAY)]
        assert refusals(bob.all()) == refused
        assert hub.routes.links.all == (ann.client.fd,)
        assert bridge.verdicts() == {"accepted": 1}
        # Without the right a gateway is refused and gets nothing any more.
        hub.reload(rules=[Rule(link=False)])
        assert refusals(ann.all()) == [(b"not_permitted", frames.LINK)]
        assert not hub.routes.links.all


def report(peer: Peer, **fields: object) -> None:
    peer.send(frames.control(frames.GATEWAY, json.dumps({"gateway": "nng", **fields}).encode()))
    assert peer.all() == [frames.control(frames.GATEWAY, b"")]


def test_the_last_report_of_a_gateway_is_shown(bridge: Bridge) -> None:
    gateway = bridge.hub.connect()
    bridge.links.expected = ["nng", "broker"]
    report(gateway, received=5)
    report(gateway, received=6)
    shown = {one.gateway: (one.up, one.received, one.pid) for one in bridge.links}
    assert shown == {"nng": (True, 6, gateway.client.peer.pid), "broker": (False, 0, 0)}
    bridge.links.expected = []  # of those that are not configured only what is there is shown
    assert [one.up for one in bridge.links] == [True]
    gateway.close()
    bridge.hub.settle()
    bridge.hub.turn()
    assert list(bridge.links) == []
    bridge.links.expected = ["nng"]
    assert [one.up for one in bridge.links] == [False]


def test_starts_of_a_gateway_are_counted(bridge: Bridge) -> None:
    now, bridge.links.expected = time.monotonic(), ["nng"]
    for times, starts in (
        ([], 0),
        ([now / 2, now / 2], 0),  # it was there before this daemon
        ([now + 1], 1),
        ([now + 2, now + 2], 2),
        ([now + 1, now + 2], 2),  # two that overlap
        ([0.0], 2),  # of a version that does not tell
    ):
        for when in times:
            report(bridge.hub.connect(), started=when)
        assert [one.starts for one in bridge.links] == [starts]


def test_a_dialect_is_chosen_before_the_first_pattern(bridge: Bridge) -> None:
    client = bridge.hub.connect()
    client.send(b"CMSG !/bccn/dialect\0broker", b"SUB a/+/c", b"SUB x/*")
    client.publish(b"a/b/c", b"1")
    client.publish(b"a/b", b"2")
    client.publish(b"x", b"3")
    client.publish(b"x/y/z", b"4")
    assert client.all() == [b"MSG a/b/c\x001", b"MSG x\x003", b"MSG x/y/z\x004"]
    client.send(b"CMSG !/bccn/dialect\0path", b"CMSG !/bccn/dialect\0none", b"CMSG !/bccn/dialect\0\xff")
    assert refusals(client.all()) == [
        (reason, frames.DIALECT) for reason in (b"subscribed", b"unknown_dialect", b"unknown_dialect")
    ]
    assert client.client.dialect.name == "broker"
