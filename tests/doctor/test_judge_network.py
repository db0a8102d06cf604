"""What facts about the network mean: each table has a fact as it should be, and what of it is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bccnd.doctor.facts import Filter, Firewall, Holder, Interface, SegmentFacts
from bccnd.doctor.finding import Finding
from bccnd.doctor.judge_network import judge_firewall, judge_segment

LAN = Interface("lan0", mtu=1500, addresses=("10.0.0.1/24",), rp_filter=1, others=("lo", "lan0"))
WELL = SegmentFacts(
    name="lan",
    address="10.0.0.255",
    port=5400,
    interface="lan0",
    receive_buffer=1 << 20,
    way=("lan0", "10.0.0.1"),
    looks=LAN,
    holders=(Holder(77, "bccnd", 0),),
    grantable=1 << 20,
    granted=1 << 20,
)


def judged(facts: SegmentFacts, *, pid: int = 77, runs: bool = True) -> list[Finding]:
    return list(judge_segment(facts, pid, runs))


def test_of_a_segment_that_is_well_everything_is_ok() -> None:
    found = judged(WELL)
    assert {one.check for one in found} == {"interface", "route", "port", "receive buffer"}
    assert {one.state for one in found} == {"ok"}


def looks(**changes: Any) -> SegmentFacts:
    return replace(WELL, looks=replace(LAN, **changes))


NO_ROUTE = ("no_route", "segment lan: no way to 10.0.0.255: Network is unreachable", "name the interface")
IN_USE = ("port_in_use", "segment lan: port 0.0.0.0:5400 is in use by a program that does not share it", "find it")


@pytest.mark.parametrize(
    ("facts", "check", "state", "says", "remedy"),
    [
        (looks(there=False), "interface", "wrong", "there is no interface lan0; there are: lo, lan0", "segments.inter"),
        (looks(up=False), "interface", "wrong", "lan0 is down", "ip link set lan0 up"),
        (looks(running=False), "interface", "wrong", "no carrier", "ip -s link show lan0"),
        (looks(broadcast=False), "interface", "wrong", "knows no broadcast", "segments.interface"),
        (looks(addresses=()), "interface", "wrong", "no IPv4 address", "ip address add"),
        (looks(mtu=1280), "interface", "look", "more than 1252 bytes travel in pieces", "ip link set lan0 mtu 1500"),
        (replace(WELL, looks=None), "interface", "not checked", "not known by which interface", ""),
        (replace(WELL, refused=NO_ROUTE), "route", "wrong", "no way to 10.0.0.255", "name the interface"),
        (replace(WELL, refused=IN_USE), "port", "wrong", "does not share it: bccnd (pid 77)", "find it"),
        (
            replace(WELL, refused=("no_interface", "there is none", "name one")),
            *("route", "not checked", "see interface", ""),
        ),
        (replace(WELL, holders=None), "port", "not checked", "/proc/net/udp cannot be read", ""),
        (replace(WELL, holders=()), "port", "look", "nobody holds it here, though a daemon answers", "container"),
        (replace(WELL, holders=(Holder(0, "", 0),)), "port", "not checked", "a socket is open there", "as root"),
        (
            replace(WELL, holders=(*(WELL.holders or ()), Holder(9, "bccnd", 5))),
            *("port", "look", "another daemon holds it too: bccnd (pid 9)", "kill 9"),
        ),
        (
            replace(WELL, holders=(*(WELL.holders or ()), Holder(9, "perl", 5))),
            *("port", "look", "held by perl (pid 9) as well", "BCCN program"),
        ),
        (
            replace(WELL, holders=(Holder(77, "bccnd", 0, drops=12),)),
            *("receive buffer", "look", "dropped 12 datagrams", "raise segments.receive_buffer to 2097152"),
        ),
        (replace(WELL, granted=4096), "receive buffer", "look", "keeps 4,096 bytes", "net.core.rmem_max=1048576"),
        (
            replace(WELL, granted=None, grantable=4096),
            *("receive buffer", "look", "grants 4,096 bytes", "ReceiveBuffer=1048576"),
        ),
        (replace(WELL, granted=None, grantable=None), "receive buffer", "not checked", "no socket could be opened", ""),
    ],
)
def test_what_is_wrong_with_a_segment_is_said_with_its_remedy(
    facts: SegmentFacts, check: str, state: str, says: str, remedy: str
) -> None:
    found = [one for one in judged(facts) if one.check == check and one.state == state]
    assert any(says in one.finding and remedy in one.remedy for one in found), judged(facts)


def test_strict_filtering_matters_only_where_there_is_no_address() -> None:
    assert not any("rp_filter" in one.finding for one in judged(WELL))
    (found,) = [one for one in judged(looks(addresses=())) if "rp_filter" in one.finding]
    assert found.remedy == "sysctl -w net.ipv4.conf.lan0.rp_filter=2"


def test_systemd_holds_the_port_for_the_daemon_and_without_one_a_free_port_is_well() -> None:
    found = judged(replace(WELL, holders=(Holder(1, "systemd", 0), Holder(77, "bccnd", 0))))
    assert {one.state for one in found} == {"ok"}
    (port,) = [one for one in judged(replace(WELL, holders=()), pid=0, runs=False) if one.check == "port"]
    assert (port.state, "5400 is free" in port.finding) == ("ok", True)


def test_a_firewall_is_judged_by_what_could_be_read() -> None:
    (well,) = judge_firewall(Firewall(), [5400])
    assert (well.state, "5400" in well.finding) == ("ok", True)
    (shut,) = judge_firewall(Firewall("nft says: not permitted", "run this as root"), [5400])
    assert (shut.state, shut.remedy) == ("not checked", "run this as root")
    (drop,) = judge_firewall(Firewall(drops=(Filter("a rule", "nft delete"),)), [5400])
    assert (drop.state, drop.remedy) == ("look", "nft delete")
