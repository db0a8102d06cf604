"""Checks of the segments: interface, route, port, receive buffer, round trip, and the firewall."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from bccnd.config import SegmentSettings
from bccnd.core.wire.bccn1 import MAX_SEND
from bccnd.doctor.probe import Probe
from bccnd.doctor.probe_host import ProbeError
from bccnd.doctor.result import CheckFinding, look, not_checked, ok, wrong
from bccnd.errors import StartError

#: bytes of the headers of IPv4 and UDP
HEADERS: Final = 28
_PORT_REASONS: Final = ("port_in_use", "port_refused")
_LOOK_AT_RULES: Final = "list the rules as root: nft list ruleset; iptables-save"


def check_interface(probe: Probe) -> Iterator[CheckFinding]:
    """Whether the interface of each segment is there, up, and suits broadcast."""
    try:
        interfaces = {row["ifname"]: row for row in probe.run_json("ip", "-j", "address", "show") if row}
    except ProbeError as error:
        yield not_checked(f"cannot tell: {error}", "apt install iproute2")
        return
    for segment in probe.settings.segments:
        name, _ = _outgoing(probe, segment)
        what = f"segment {segment.label}: {name}"
        row = interfaces.get(name, {})
        flags, mtu = row.get("flags", ()), row.get("mtu", 0)
        addresses = [f"{one['local']}/{one['prefixlen']}" for one in row.get("addr_info", ()) if "." in one["local"]]
        if not name:
            yield not_checked(f"{what}the interface for {segment.address} is unknown", "ip route")
        elif not row:
            remedy = "correct segments.interface, or wait until it exists: ip link"
            yield wrong(f"{what} does not exist; the interfaces are: {', '.join(interfaces)}", remedy)
        elif "UP" not in flags:
            yield wrong(f"{what} is down", f"ip link set {name} up")
        elif "LOWER_UP" not in flags:
            yield wrong(f"{what} has no carrier: no cable, or no peer", f"ip -s link show {name}")
        elif "BROADCAST" not in flags and "LOOPBACK" not in flags:
            yield wrong(f"{what} cannot broadcast", "name another one under segments.interface")
        elif not addresses and ":" not in segment.address:
            yield wrong(f"{what} has no IPv4 address", f"ip address add ADDRESS/LENGTH brd + dev {name}")
        elif mtu < MAX_SEND + HEADERS:
            finding = f"{what} takes packets of {mtu} bytes: messages of more than {mtu - HEADERS} bytes are split"
            yield look(finding, f"ip link set {name} mtu 1500, on every host of the segment")
        else:
            yield ok(f"{what} is up, takes packets of {mtu} bytes, and has {', '.join(addresses) or 'no IPv4 address'}")


def _outgoing(probe: Probe, segment: SegmentSettings) -> tuple[str, str]:
    """Interface and source address of what is sent to a segment, empty if they cannot be found out."""
    device = ["oif", segment.interface] if segment.interface else []
    try:
        row = probe.run_json("ip", "-j", "route", "get", segment.address, *device)[0]
    except (ProbeError, LookupError):
        return segment.interface or "", ""
    return segment.interface or row["dev"], row.get("prefsrc", "")


def check_route(probe: Probe) -> Iterator[CheckFinding]:
    """Whether the daemon can open each segment, and which way its datagrams leave."""
    for segment in probe.settings.segments:
        name, source = _outgoing(probe, segment)
        try:
            probe.open_segment(segment)
        except StartError as error:
            if error.reason not in _PORT_REASONS:
                yield wrong(error.detail, error.remedy)
                continue
        way = f"leaves by {name}, from {source}" if source else "has a route"
        yield ok(f"segment {segment.label}: {segment.address} {way}")


def check_port(probe: Probe) -> Iterator[CheckFinding]:
    """Which processes hold the port of each segment."""
    for segment in probe.settings.segments:
        what, sockets = f"UDP port {segment.port}", []
        try:
            sockets = probe.udp_sockets(segment.port)
            probe.open_segment(segment)
        except ProbeError as error:
            yield not_checked(f"{what}: cannot tell: {error}", "apt install iproute2")
            continue
        except StartError as error:
            if error.reason in _PORT_REASONS:
                yield wrong(f"{error.detail}: {_list([one.processes for one in sockets])}", error.remedy)
                continue
        # systemd keeps the sockets of a socket unit.
        own = [one.processes for one in sockets if {probe.pid, 1} & one.processes.keys()]
        others = [one.processes for one in sockets if one.processes and one.processes not in own]
        if others:
            remedy = f"nothing for a BCCN program ('bccn direct'); for a second daemon: kill {next(iter(others[0]))}"
            yield look(f"{what}: also held by {_list(others)}; each of them receives all broadcasts", remedy)
        if own:
            yield ok(f"{what} is held by {_list(own)}")
        elif len(others) < len(sockets):
            yield not_checked(f"{what}: sockets are open whose processes only root sees", "run this as root")
        elif not probe.daemon.status and not sockets:
            yield ok(f"{what} is free")
        elif probe.daemon.status:
            remedy = "compare the daemon's configuration with --config FILE; run this in the daemon's container"
            yield look(f"{what}: not held by the daemon that answers: another configuration or network", remedy)


def _list(processes: Iterable[dict[int, str]]) -> str:
    return (
        ", ".join(f"{name} (pid {pid})" for one in processes for pid, name in one.items())
        or "only root sees from which"
    )


def check_receive_buffer(probe: Probe) -> Iterator[CheckFinding]:
    """How much the kernel keeps for the daemon, and what it has dropped."""
    for segment in probe.settings.segments:
        what, wanted = f"segment {segment.label}", segment.receive_buffer
        try:
            sockets = probe.udp_sockets(segment.port)
            own = [one.buffer for one in sockets if probe.pid in one.processes]
            size = own[0] if own else probe.open_segment(segment)
        except (ProbeError, StartError) as error:
            yield not_checked(f"{what}: cannot tell: {getattr(error, 'detail', error)}", "see port and route")
            continue
        if drops := sum(one.drops for one in sockets):
            finding = f"{what}: the kernel dropped {drops:,} datagrams because the daemon did not read them in time"
            remedy = f"raise segments.receive_buffer to {2 * wanted}, and net.core.rmem_max; bccn top shows the load"
            yield look(finding, remedy)
        subject = "the daemon's socket has" if own else "the kernel grants"
        if size < wanted:
            finding = f"{what}: {subject} {size:,} bytes, and {wanted:,} are configured: a burst may be lost"
            unit = f"; with a socket unit, ReceiveBuffer={wanted} there" * probe.systemd
            remedy = f"sysctl -w net.core.rmem_max={wanted} (and in /etc/sysctl.d), restart the daemon{unit}"
            yield look(finding, remedy)
        else:
            yield ok(f"{what}: {subject} {size:,} bytes")


def check_round_trip(probe: Probe) -> Iterator[CheckFinding]:
    """A message from this host to this host, over the bus and over the segment."""
    trip = probe.trip
    if trip.skipped or trip.failed:
        yield not_checked(trip.skipped, trip.remedy) if trip.skipped else wrong(trip.failed, trip.remedy)
        return
    if trip.seconds is not None:
        yield ok(f"a message to this command arrived over the bus after {trip.seconds * 1000:.1f} ms")
    count, names = (
        f"its broadcast returned from {trip.returned} of {len(trip.segments)} segments",
        ", ".join(trip.segments),
    )
    remedy = "see interface and firewall; tcpdump -ni INTERFACE udp port PORT shows whether the broadcast is sent"
    if trip.returned >= len(trip.segments):
        yield ok(f"{count}: {names}")
    elif trip.missing:
        yield wrong(f"{count} within 1 s, and not from: {', '.join(trip.missing)}", remedy)
    else:
        yield wrong(f"{count} within 1 s: {names}", f"run this as root to see from which; {remedy}")


def check_firewall(probe: Probe) -> Iterator[CheckFinding]:
    """Whether a firewall sees what comes in, and our own broadcast passes it; its rules are not read."""
    passes = "; our own broadcast passes" if 0 < len(probe.trip.segments) == probe.trip.returned else ""
    try:
        chains = ", ".join(probe.input_chains())
    except ProbeError as error:
        yield not_checked(f"cannot tell: {error}{passes}", _LOOK_AT_RULES)
        return
    port = ", ".join({str(one.port) for one in probe.settings.segments})
    if not chains:
        yield ok("none is active")
    elif passes:
        yield ok(f"active: {chains}{passes}; rules for single senders: nft list ruleset")
    elif probe.trip.segments:
        remedy = (
            f"{_LOOK_AT_RULES}; ufw allow {port}/udp, firewall-cmd --add-port={port}/udp, or the same in your rules"
        )
        yield look(f"active: {chains}; our own broadcast does not return", remedy)
    else:
        yield not_checked(f"active: {chains}; it is unknown which traffic it accepts", _LOOK_AT_RULES)
