"""Facts that the daemon tells, and a message that goes from here to here.

Law: every question has an end; what is sent is directed to ourselves, so that nobody else takes it for his.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import secrets
import socket
import time
from typing import Any, Final

from bccnd.client.bus import Connection, connect
from bccnd.client.message import Message
from bccnd.config import Configuration, SegmentSettings
from bccnd.core import bccn1, frames
from bccnd.core.identity import identity
from bccnd.core.integrity import make_door
from bccnd.doctor import system
from bccnd.doctor.facts import DaemonAnswer, Metrics, Trip
from bccnd.doctor.network import options_of
from bccnd.errors import BadFrame, BccndError, BusError, StartError
from bccnd.net.udp import destination, open_udp

#: seconds that a daemon has for an answer
PATIENCE: Final = 3.0
#: seconds that a broadcast has for its way out and back in
WIRE: Final = 1.0
#: pages of a listing that are looked at: those who ask how gateways are have few of them
_PAGES: Final = 10


def ask_daemon(path: str) -> DaemonAnswer:
    """What the daemon behind a socket says of itself."""
    began = time.monotonic()
    try:
        with connect(path, reconnect=False) as bus:
            bus.ask(frames.WHOAMI, timeout=PATIENCE)
            seconds = time.monotonic() - began
            try:
                said = _listing(bus, "daemon")
            except BusError as error:
                if error.reason not in ("unknown_control", "unknown_listing"):
                    raise
                return DaemonAnswer(seconds=seconds)
            return DaemonAnswer(seconds=seconds, said=said[0] if said else {}, gateways=_listing(bus, "gateways"))
    except BusError as error:
        seconds = time.monotonic() - began
        if isinstance(error.__cause__, PermissionError):
            return DaemonAnswer("not_permitted", error.detail, seconds)
        if error.reason == "no_answer":
            pid = peer_pid(path)
            return DaemonAnswer(error.reason, error.detail, seconds, {"pid": pid}, state=system.state_of(pid))
        return DaemonAnswer(error.reason, error.detail, seconds)


def _listing(bus: Connection, topic: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    ask = topic.encode()
    for _ in range(_PAGES):
        page = json.loads(bus.ask(frames.STATS, ask, timeout=PATIENCE))
        rows += page["items"]
        if not page["more"]:
            break
        ask = b"more"
    return rows


def peer_pid(path: str) -> int:
    """Who listens behind a socket, as the kernel knows; systemd for sockets that it has opened. 0 for nobody."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as sock:
        try:
            sock.connect(path)
            raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        except (OSError, ValueError):
            return 0
    return int.from_bytes(raw[:4], "little" if socket.htons(1) != 1 else "big")


def look_at_metrics(listen: tuple[str, int] | None) -> Metrics:
    if listen is None:
        return Metrics()
    host, port = listen
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    address = ipaddress.ip_address(host)
    reach = host
    if address.is_unspecified:
        reach = "::1" if ":" in host else "127.0.0.1"
    try:
        answer = http.client.HTTPConnection(reach, port, timeout=PATIENCE)
        answer.request("GET", "/metrics")
        status = answer.getresponse().status
        answer.close()
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Metrics(where, not address.is_loopback, trouble=why)
    return Metrics(where, not address.is_loopback, status)


# -- the round trip


def take_trip(path: str, segments: list[str]) -> Trip:
    """Send a message to ourselves through the daemon, and wait for it and for its broadcast."""
    token = b"bccn doctor " + secrets.token_hex(8).encode()
    try:
        with connect(path, reconnect=False) as bus:
            return _through(bus, token, segments)
    except BusError as error:
        return Trip(failed=f"the daemon has not taken a message to ourselves: {error.detail}", remedy="see daemon")


def _through(bus: Connection, token: bytes, segments: list[str]) -> Trip:
    bus.subscribe(frames.TAP.decode())
    taps = not bus.sync(PATIENCE)
    me = bus.identity()
    before = 0 if taps else _looped(bus)
    began = time.monotonic()
    bus.send_to(me, token)
    refused = bus.sync(PATIENCE)
    if refused:
        if refused[0].reason == "not_permitted":
            return Trip(skipped="you may not publish to yourself (access)", remedy="run this as root")
        return Trip(failed=f"a message to ourselves was refused: {refused[0].reason}", remedy="see the daemon's log")
    heard, back, wire = None, {}, 0.0
    while (left := began + WIRE - time.monotonic()) > 0 and (heard is None or (taps and len(back) < len(segments))):
        event = bus.receive(left)
        if not isinstance(event, Message) or token not in event.payload:
            continue
        if not event.chan.startswith("!/"):
            heard = time.monotonic() - began
        elif (tapped := _tapped(event)) is not None:
            back[tapped[0]], wire = tapped[1], time.monotonic() - began
    if heard is None:
        return Trip(failed="a message to ourselves has not come over the bus within a second", remedy="bccn top")
    if taps:
        return Trip(seconds=heard, segments=tuple(segments), back=tuple(back.items()), wire_seconds=wire or None)
    while time.monotonic() < began + WIRE:
        if _looped(bus) > before:
            names = tuple((name, "looped") for name in segments)
            return Trip(seconds=heard, segments=tuple(segments), back=names, seen_by="counters")
        time.sleep(0.02)
    return Trip(seconds=heard, segments=tuple(segments), seen_by="counters")


def _tapped(event: Message) -> tuple[str, str] | None:
    try:
        verdict, segment, *_ = frames.read_tapped(event.chan.encode(), event.payload)
    except BadFrame:
        return None
    return segment, verdict


def _looped(bus: Connection) -> int:
    (said,) = _listing(bus, "daemon")
    return int(said["verdicts"]["looped"])


def take_own_trip(configuration: Configuration | None, segments: tuple[SegmentSettings, ...], host: str) -> Trip:
    """The same without a daemon: what a socket of ours sends to a segment, it must hear itself."""
    if configuration is None:
        return Trip(
            skipped="no daemon runs, and without its keys nothing is sent that others would take for a forgery",
            remedy="start the daemon, or run this as who may read the keys",
        )
    settings = configuration.settings
    me = identity(host.encode(), b"doctor", os.getpid())
    token = b"bccn doctor " + secrets.token_hex(8).encode()
    body = bccn1.build_body(me, time.time_ns() // 1000, b"!" + me, token)
    try:
        door = make_door(settings.integrity.algorithm, configuration.keys, configuration.signers)
        datagram = bccn1.build(body, door.seal(body))
    except BccndError as error:
        return Trip(skipped=f"no daemon runs, and a message cannot be signed: {error.detail or error.reason}")
    back = []
    began = time.monotonic()
    for one in segments:
        try:
            if _comes_back(one, datagram):
                back.append((one.label, "back"))
        except StartError as error:
            return Trip(failed=error.detail, remedy=error.remedy)
        except OSError as error:
            return Trip(failed=f"segment {one.label}: cannot send: {error.strerror}", remedy="see interface and route")
    names = tuple(one.label for one in segments)
    return Trip(segments=names, back=tuple(back), wire_seconds=time.monotonic() - began, seen_by="own")


def _comes_back(one: SegmentSettings, datagram: bytes) -> bool:
    options = options_of(one)
    with open_udp(options) as sock:
        sock.sendto(datagram, destination(options, sock))
        deadline = time.monotonic() + WIRE
        while (left := deadline - time.monotonic()) > 0:
            sock.settimeout(left)
            try:
                if sock.recv(bccn1.MAX_UDP) == datagram:
                    return True
            except TimeoutError:
                break
    return False
