"""Asks the daemon and its metrics listener, and sends a message from this host to this host.

Invariant: every question has a timeout; the message is addressed to this process, so that no other program gets it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import socket
import time
from dataclasses import dataclass, field
from typing import Final, TypeVar

from bccnd.client.bus import Connection, connect
from bccnd.client.message import Message
from bccnd.config import Configuration
from bccnd.core.wire import frames
from bccnd.core.wire.identity_format import identity
from bccnd.doctor.probe_host import read_text
from bccnd.endpoint.endpoint import Endpoint
from bccnd.errors import BusError, EndpointError
from bccnd.snapshot import DaemonSummary, GatewayState, read_rows

T = TypeVar("T")

#: seconds that the daemon has for an answer
TIMEOUT: Final = 3.0
#: seconds that a broadcast has to return
RETURN_TIMEOUT: Final = 1.0
#: the tap's channel of our own broadcasts that return
_LOOPED: Final = "!/tap/looped"


@dataclass(frozen=True)
class DaemonAnswer:
    """``error`` is the reason of the BusError, empty if the daemon answered; ``status`` is its own description, None
    for bccn-sbusd; ``state`` is that of its process, as in proc(5), if it did not answer."""

    error: str = ""
    detail: str = ""
    seconds: float = 0.0
    status: DaemonSummary | None = None
    gateways: list[GatewayState] = field(default_factory=list)
    pid: int = 0
    state: str = ""


def ask_daemon(path: str) -> DaemonAnswer:
    began, seconds = time.monotonic(), 0.0
    try:
        with connect(path, reconnect=False) as bus:
            bus.ask(frames.WHOAMI, timeout=TIMEOUT)
            seconds = time.monotonic() - began
            (status,) = _list(bus, b"daemon", DaemonSummary)
            gateways = _list(bus, b"gateways", GatewayState)
            return DaemonAnswer(seconds=seconds, status=status, gateways=gateways, pid=status.pid)
    except BusError as error:
        if error.reason in ("unknown_control", "unknown_listing"):
            return DaemonAnswer(seconds=seconds)
        reason = "not_permitted" if isinstance(error.__cause__, PermissionError) else error.reason
        pid = peer_pid(path) if reason == "no_answer" else 0
        state = read_text(f"/proc/{pid}/stat").rpartition(") ")[2][:1]
        return DaemonAnswer(reason, error.detail, time.monotonic() - began, pid=pid, state=state)


def _list(bus: Connection, topic: bytes, kind: type[T]) -> list[T]:
    """The first page of a listing, which is all of a short one."""
    return read_rows(kind, json.loads(bus.ask(frames.STATS, topic, timeout=TIMEOUT))["items"])


def peer_pid(path: str) -> int:
    """The process that listens behind a socket (systemd for a socket unit); 0 if that cannot be found out."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    with sock, contextlib.suppress(OSError, ValueError):
        sock.connect(path)
        return memoryview(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)).cast("i")[0]
    return 0


def get_metrics(host: str, port: int) -> None:
    """Fetch the metrics page. Raises OSError, HTTPException if it cannot be had."""
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=TIMEOUT)) as connection:
        connection.request("GET", "/metrics")
        if (status := connection.getresponse().status) != http.client.OK:
            raise OSError(f"status {status}")


@dataclass(frozen=True)
class RoundTrip:
    """What became of a message from this host to this host. ``returned`` counts the segments that gave it back,
    ``missing`` names the others; it is empty if they are not known."""

    skipped: str = ""
    failed: str = ""
    remedy: str = ""
    #: until it arrived over the bus, None without a daemon
    seconds: float | None = None
    segments: tuple[str, ...] = ()
    returned: int = 0
    missing: tuple[str, ...] = ()


def trip_through_daemon(path: str, segments: tuple[str, ...]) -> RoundTrip:
    token, seconds, returned = _make_token(), 0.0, 0
    back: set[str] = set()
    try:
        with connect(path, reconnect=False) as bus:
            may_tap = False
            if len(segments) > 1:  # a single one needs no name, and a refused tap is a warning in the daemon's log
                bus.subscribe(_LOOPED)
                may_tap = not bus.sync(TIMEOUT)
            looped, target = _count_looped(bus), bus.identity()
            began = time.monotonic()
            bus.send_to(target, token)
            if refused := bus.sync(TIMEOUT):
                raise BusError(refused[0].reason, f"refused: {refused[0].reason}")
            while not seconds or returned < len(segments):
                if (left := began + RETURN_TIMEOUT - time.monotonic()) <= 0:
                    break
                message = bus.receive(min(left, 0.02))
                if isinstance(message, Message) and message.payload == token:
                    seconds = time.monotonic() - began
                elif isinstance(message, Message) and message.chan == _LOOPED and token in message.payload:
                    back.add(frames.read_tapped(_LOOPED.encode(), message.payload)[1])
                # Without the tap, broadcasts of other local programs count as well: what lets them in lets all in.
                returned = len(back) if may_tap else min(_count_looped(bus) - looped, len(segments))
    except BusError as error:
        if error.reason == "not_permitted":
            return RoundTrip(skipped="this user may not publish (access)", remedy="run this as root")
        return RoundTrip(failed=f"the daemon did not take a message: {error.detail}", remedy="see daemon")
    if not seconds:
        return RoundTrip(failed="a message to this command did not arrive over the bus within 1 s", remedy="bccn top")
    missing = tuple(name for name in segments if name not in back) if may_tap or not returned else ()
    return RoundTrip(seconds=seconds, segments=segments, returned=returned, missing=missing)


def _make_token() -> bytes:
    return b"bccn doctor " + secrets.token_hex(8).encode()


def _count_looped(bus: Connection) -> int:
    return _list(bus, b"daemon", DaemonSummary)[0].verdicts["looped"]


def trip_without_daemon(configuration: Configuration) -> RoundTrip:
    """The same through a socket of this process, signed as the daemon would."""
    settings, missing = configuration.settings, []
    name = identity(settings.host.encode(), b"doctor", os.getpid()).decode("ascii")
    token = _make_token()
    for segment in settings.segments:
        try:
            endpoint = Endpoint(
                name,
                segment.address,
                segment.port,
                segment.bind or "0.0.0.0",
                configuration.keys,
                interface=segment.interface,
                hop_limit=segment.hop_limit,
                algorithm=settings.integrity.algorithm,
                signers={os.fsdecode(prefix): keys for prefix, keys in configuration.signers.items()},
                accept_unverifiable=True,
            )
            with endpoint:
                endpoint.send_to(name, token)
                deadline = time.monotonic() + RETURN_TIMEOUT
                while (left := deadline - time.monotonic()) > 0:
                    if (message := endpoint.recv(left)) is not None and message.payload == token:
                        break
                else:
                    missing.append(segment.label)
        except EndpointError as error:
            if error.reason == "no_signing_key":
                return RoundTrip(skipped="no daemon runs, and this host has no key to sign with")
            failed, _, remedy = error.detail.partition("\n  remedy: ")
            return RoundTrip(failed=failed, remedy=remedy or "see interface and route")
    segments = tuple(one.label for one in settings.segments)
    return RoundTrip(segments=segments, returned=len(segments) - len(missing), missing=tuple(missing))
