"""Interface, route, port, buffer, round trip, firewall: each row changes one answer of a host that is well."""

from __future__ import annotations

from typing import Any

import pytest

from bccnd.doctor import check_network
from bccnd.doctor.probe_daemon import DaemonAnswer, RoundTrip
from bccnd.doctor.probe_host import ProbeError, UdpSocket
from bccnd.doctor.result import CheckFinding
from bccnd.errors import StartError
from tests.doctor.probes import LAN, assert_found, probe

NO_ROUTE = StartError("no_route", "segment lan: no route to 10.0.0.255", "name the interface")
IN_USE = StartError("port_in_use", "port 5400 is in use", "find it")
OWN = UdpSocket({77: "bccnd"}, 1 << 20)


def interface(**changes: Any) -> list[CheckFinding]:
    rows = [{**LAN, **changes}]
    route = [{"dev": "lan0", "prefsrc": "10.0.0.1"}]
    return list(check_network.check_interface(probe(run_json=lambda *command: route if "route" in command else rows)))


@pytest.mark.parametrize(
    ("found", "state", "text", "remedy"),
    [
        (interface(), "ok", "lan0 is up, takes packets of 1500 bytes, and has 10.0.0.1/24", ""),
        (interface(ifname="lo"), "wrong", "lan0 does not exist; the interfaces are: lo", "segments.interface"),
        (interface(flags=["BROADCAST"]), "wrong", "lan0 is down", "ip link set lan0 up"),
        (interface(flags=["BROADCAST", "UP"]), "wrong", "no carrier", "ip -s link show lan0"),
        (interface(flags=["UP", "LOWER_UP"]), "wrong", "cannot broadcast", "segments.interface"),
        (interface(addr_info=[]), "wrong", "no IPv4 address", "ip address add"),
        (interface(mtu=1280), "look", "more than 1252 bytes are split", "ip link set lan0 mtu 1500"),
    ],
)
def test_interface(found: list[CheckFinding], state: str, text: str, remedy: str) -> None:
    assert_found(iter(found), state, text, remedy)


def test_without_ip_the_kernel_says_what_it_can() -> None:
    absent = probe(run_json=ProbeError("ip is not installed"))
    assert_found(check_network.check_interface(absent), "not checked", "ip is not installed", "iproute2")
    assert_found(check_network.check_route(absent), "ok", "segment lan: 10.0.0.255 has a route")
    unknown = probe(run_json=lambda *command: [] if "route" in command else [LAN])
    assert_found(check_network.check_interface(unknown), "not checked", "the interface for")


def test_route() -> None:
    assert_found(check_network.check_route(probe()), "ok", "10.0.0.255 leaves by lan0, from 10.0.0.1")
    refused = probe(open_segment=NO_ROUTE)
    assert_found(check_network.check_route(refused), "wrong", "no route to 10.0.0.255", "name the interface")
    assert_found(check_network.check_route(probe(open_segment=IN_USE)), "ok", "leaves by lan0")


@pytest.mark.parametrize(
    ("changes", "state", "text", "remedy"),
    [
        ({}, "ok", "held by bccnd (pid 77), systemd (pid 1)", ""),
        ({"udp_sockets": [OWN, UdpSocket({9: "perl"})]}, "look", "also held by perl (pid 9)", "BCCN program"),
        ({"udp_sockets": [OWN, UdpSocket({9: "bccnd"})]}, "look", "also held by bccnd (pid 9)", "kill 9"),
        ({"udp_sockets": []}, "look", "not held by the daemon", "container"),
        ({"udp_sockets": [UdpSocket({})]}, "not checked", "only root sees", "as root"),
        ({"udp_sockets": [], "daemon": DaemonAnswer("no_daemon")}, "ok", "is free", ""),
        ({"udp_sockets": ProbeError("ss is not installed")}, "not checked", "ss is not installed", "iproute2"),
        ({"open_segment": IN_USE, "udp_sockets": [UdpSocket({9: "x"})]}, "wrong", "in use: x (pid 9)", "find it"),
        ({"open_segment": IN_USE, "udp_sockets": [UdpSocket({})]}, "wrong", "in use: only root sees", "find it"),
    ],
)
def test_port(changes: dict[str, Any], state: str, text: str, remedy: str) -> None:
    assert_found(check_network.check_port(probe(**changes)), state, text, remedy)


@pytest.mark.parametrize(
    ("changes", "state", "text", "remedy"),
    [
        ({}, "ok", "the daemon's socket has 1,048,576 bytes", ""),
        ({"udp_sockets": [OWN._replace(drops=12)]}, "look", "dropped 12 datagrams", "receive_buffer to 2097152"),
        ({"udp_sockets": [OWN._replace(buffer=4096)]}, "look", "socket has 4,096 bytes", "rmem_max=1048576"),
        ({"udp_sockets": [], "open_segment": 4096}, "look", "grants 4,096 bytes", "ReceiveBuffer=1048576"),
        ({"udp_sockets": []}, "ok", "the kernel grants 1,048,576 bytes", ""),
        ({"udp_sockets": [], "open_segment": NO_ROUTE}, "not checked", "segment lan: no route", "see port"),
    ],
)
def test_receive_buffer(changes: dict[str, Any], state: str, text: str, remedy: str) -> None:
    assert_found(check_network.check_receive_buffer(probe(**changes)), state, text, remedy)


TWO = RoundTrip(seconds=0.001, segments=("lan", "wan"), returned=2)
ONE = RoundTrip(seconds=0.001, segments=("lan", "wan"), returned=1, missing=("wan",))
UNNAMED = RoundTrip(seconds=0.001, segments=("lan", "wan"), returned=1)


@pytest.mark.parametrize(
    ("trip", "states", "text"),
    [
        (TWO, ["ok", "ok"], "returned from 2 of 2 segments: lan, wan"),
        (ONE, ["ok", "wrong"], "returned from 1 of 2 segments within 1 s, and not from: wan"),
        (UNNAMED, ["ok", "wrong"], "returned from 1 of 2 segments within 1 s: lan, wan"),
        (RoundTrip(segments=("lan",), returned=1), ["ok"], "1 of 1 segments: lan"),
        (RoundTrip(skipped="no keys", remedy="as root"), ["not checked"], "no keys"),
        (RoundTrip(failed="cannot send", remedy="see route"), ["wrong"], "cannot send"),
    ],
)
def test_round_trip(trip: RoundTrip, states: list[str], text: str) -> None:
    found = list(check_network.check_round_trip(probe(trip=trip)))
    assert [one.state for one in found] == states
    assert_found(iter(found), states[-1], text)


@pytest.mark.parametrize(
    ("chains", "trip", "state", "text"),
    [
        ([], TWO, "ok", "none is active"),
        (["inet filter input"], TWO, "ok", "active: inet filter input; our own broadcast passes"),
        (["inet filter input"], ONE, "look", "our own broadcast does not return"),
        (["inet filter input"], RoundTrip(skipped="no keys"), "not checked", "unknown which traffic it accepts"),
        (ProbeError("nft is not installed"), TWO, "not checked", "cannot tell: nft is not installed; our own"),
    ],
)
def test_firewall(chains: object, trip: RoundTrip, state: str, text: str) -> None:
    found = list(check_network.check_firewall(probe(input_chains=chains, trip=trip)))
    assert_found(iter(found), state, text, "" if state == "ok" else "nft list ruleset")
