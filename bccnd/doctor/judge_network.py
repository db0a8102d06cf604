"""What the facts about the network mean: port, interface, way, firewall, buffers.

Law: the findings follow from the facts alone. What keeps the daemon from its segment is wrong; what may lose something
one day is to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from bccnd.core.bccn1 import MAX_SEND
from bccnd.doctor.facts import Firewall, Holder, Interface, SegmentFacts
from bccnd.doctor.finding import Finding, look, not_checked, ok, wrong

#: bytes of the headers of IPv4 and UDP before a datagram
HEADERS: Final = 28
#: reasons of a StartError, and the check that they belong to
_CHECK_OF: Final = {
    "no_interface": "interface",
    "interface_refused": "interface",
    "port_in_use": "port",
    "port_refused": "port",
}


def judge_segment(facts: SegmentFacts, daemon_pid: int, daemon_runs: bool) -> Iterator[Finding]:
    """Everything about one segment."""
    down = facts.looks is not None and (not facts.looks.there or not facts.looks.up)
    yield from _interface(facts)
    yield from _route(facts, down=down)
    yield from _port(facts, daemon_pid, daemon_runs=daemon_runs)
    yield from _buffer(facts)


def _interface(facts: SegmentFacts) -> Iterator[Finding]:
    check, looks = "interface", facts.looks
    if looks is None:
        yield not_checked(check, f"segment {facts.name}: it is not known by which interface {facts.address} is reached")
        return
    if not looks.there:
        there = ", ".join(looks.others) or "none"
        yield wrong(
            check,
            f"segment {facts.name}: there is no interface {looks.name}; there are: {there}",
            "correct segments.interface, or wait until it is there: ip link",
        )
        return
    if not looks.up:
        yield wrong(check, f"segment {facts.name}: {looks.name} is down", f"ip link set {looks.name} up")
        return
    what = f"segment {facts.name}: {looks.name} is up"
    if not looks.running:
        yield wrong(
            check, f"{what}, and has no carrier: no cable, or nobody at its other end", f"ip -s link show {looks.name}"
        )
    elif not looks.broadcast and not looks.loopback:
        yield wrong(check, f"{what}, and knows no broadcast", "name another one under segments.interface")
    elif not looks.addresses and ":" not in facts.address:
        yield wrong(check, f"{what}, and has no IPv4 address", f"ip address add ADDRESS/LENGTH brd + dev {looks.name}")
    elif looks.mtu is not None and looks.mtu < MAX_SEND + HEADERS:
        yield look(
            check,
            f"{what}, and takes packets of {looks.mtu} bytes: messages of more than {looks.mtu - HEADERS} bytes travel "
            "in pieces, and one piece lost is the message lost",
            f"ip link set {looks.name} mtu 1500, on every host of the segment",
        )
    else:
        mtu = "" if looks.mtu is None else f", takes packets of {looks.mtu} bytes"
        yield ok(check, f"{what}{mtu}, and has {', '.join(looks.addresses) or 'no IPv4 address'}")
    yield from _reverse_path(facts, looks)


def _reverse_path(facts: SegmentFacts, looks: Interface) -> Iterator[Finding]:
    """Strict filtering drops what comes from an address that would not be answered by this interface."""
    if looks.rp_filter == 1 and not looks.loopback and not looks.addresses:
        yield look(
            "interface",
            f"segment {facts.name}: {looks.name} has no address, and the kernel drops there what comes from addresses "
            "to which it knows no way (rp_filter 1)",
            f"sysctl -w net.ipv4.conf.{looks.name}.rp_filter=2",
        )


def _route(facts: SegmentFacts, *, down: bool) -> Iterator[Finding]:
    check = "route"
    if facts.refused is not None and facts.refused[0] not in _CHECK_OF:
        reason, finding, remedy = facts.refused
        if reason == "no_route" and down:
            remedy = f"see interface; then: {remedy}"
        yield wrong(check, finding, remedy)
    elif facts.refused is not None and _CHECK_OF[facts.refused[0]] == "interface":
        yield not_checked(check, f"segment {facts.name}: see interface")
    elif facts.way is None:
        yield ok(check, f"segment {facts.name}: the kernel knows a way to {facts.address}")
    else:
        device, source = facts.way
        yield ok(check, f"segment {facts.name}: {facts.address} goes out by {device}, from {source}")


def _port(facts: SegmentFacts, daemon_pid: int, *, daemon_runs: bool) -> Iterator[Finding]:
    check, where = "port", f"UDP port {facts.port}"
    holders = facts.holders
    if facts.refused is not None and _CHECK_OF.get(facts.refused[0]) == "port":
        _, finding, remedy = facts.refused
        who = f": {_listed(holders)}" if holders else ""
        yield wrong(check, f"{finding}{who}", remedy)
        return
    if holders is None:
        yield not_checked(check, f"{where}: /proc/net/udp cannot be read")
        return
    unseen = [one for one in holders if not one.pid]
    ours = [one for one in holders if _is_ours(one, daemon_pid)]
    strangers = [one for one in holders if one.pid and not _is_ours(one, daemon_pid)]
    rivals = [one for one in strangers if one.program.startswith("bccnd")]
    if rivals:
        yield look(
            check,
            f"{where}: another daemon holds it too: {_listed(rivals)}; each of them hands every message to its own "
            "programs, and two that are called by the same host name take each other for impostors",
            f"end one of them (kill {rivals[0].pid}), or give each a 'host' of its own",
        )
    others = [one for one in strangers if one not in rivals]
    if others:
        yield look(
            check,
            f"{where}: held by {_listed(others)} as well; broadcasts reach everybody who shares it",
            "nothing, if this is a BCCN program (the Perl module, 'bccn sub --direct'); otherwise move it elsewhere",
        )
    if not daemon_runs:
        if not holders:
            yield ok(check, f"{where} is free")
    elif ours:
        yield ok(check, f"{where} is held by {_listed(ours)}")
    elif unseen:
        count = f"{len(unseen)} sockets are" if len(unseen) > 1 else "a socket is"
        yield not_checked(check, f"{where}: {count} open there, and whose is seen by root only", "run this as root")
    elif not holders:
        yield look(
            check,
            f"{where}: nobody holds it here, though a daemon answers: it has other segments, or lives in another "
            "network than this command",
            "compare 'bccn doctor --config FILE' with the file that the daemon has; in a container look from there",
        )


def _is_ours(holder: Holder, daemon_pid: int) -> bool:
    # systemd keeps the sockets that it passes on.
    return holder.pid != 0 and holder.pid in (daemon_pid, 1)


def _listed(holders: Iterable[Holder]) -> str:
    return ", ".join(
        f"{one.program} (pid {one.pid})" if one.pid else "a program that only root sees" for one in holders
    )


def _buffer(facts: SegmentFacts) -> Iterator[Finding]:
    check, wanted = "receive buffer", facts.receive_buffer
    remedy = (
        f"sysctl -w net.core.rmem_max={wanted} (for good: a file in /etc/sysctl.d) and restart the daemon; with a "
        f"socket unit, ReceiveBuffer={wanted} there"
    )
    drops = sum(one.drops for one in facts.holders or ())
    if drops:
        yield look(
            check,
            f"segment {facts.name}: the kernel has dropped {drops:,} datagrams since these sockets were opened, as "
            "nobody took them in time",
            f"raise segments.receive_buffer to {2 * wanted}, and with it net.core.rmem_max or ReceiveBuffer=; see "
            "what keeps the daemon busy: bccn top",
        )
    if facts.granted is not None:
        if facts.granted < wanted:
            yield look(
                check,
                f"segment {facts.name}: the daemon's socket keeps {facts.granted:,} bytes, and {wanted:,} are "
                "configured: a burst may be lost",
                remedy,
            )
        else:
            yield ok(check, f"segment {facts.name}: the daemon's socket keeps {facts.granted:,} bytes")
    elif facts.grantable is None:
        yield not_checked(check, f"segment {facts.name}: no socket could be opened to ask the kernel")
    elif facts.grantable < wanted:
        yield look(
            check,
            f"segment {facts.name}: the kernel grants {facts.grantable:,} bytes, and {wanted:,} are configured: a "
            "burst may be lost",
            remedy,
        )
    else:
        yield ok(check, f"segment {facts.name}: the kernel grants {wanted:,} bytes")


def judge_firewall(facts: Firewall, ports: Iterable[int]) -> Iterator[Finding]:
    """Whether a rule keeps the segments' datagrams out."""
    check = "firewall"
    for one in facts.drops:
        yield look(check, one.text, one.remedy)
    if facts.trouble:
        yield not_checked(check, facts.trouble, facts.remedy)
    elif not facts.drops:
        named = ", ".join(map(str, dict.fromkeys(ports)))
        yield ok(check, f"no rule that could be read keeps out what comes to UDP port {named}")
