"""Socket activation: passed sockets are matched by type and address in any order; unused ones are refused."""

from __future__ import annotations

import itertools
import os
import random
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from bccnd.core.wire.bccn1 import MAX_RECEIVE
from bccnd.errors import StartError
from bccnd.handover.descriptor_store import is_stored
from bccnd.net.segment import SegmentOptions
from bccnd.net.socket_activation import ActivatedSockets
from tests.net.sockets import bound_udp
from tests.support import BROADCAST, cannot_here, free_port

GROUP = "239.255.54.11"


def options(
    name: str = "here", port: int = 5400, address: str = BROADCAST, device: str | None = None
) -> SegmentOptions:
    return SegmentOptions(name, address, port, interface=device, receive_buffer=65_536, largest=MAX_RECEIVE)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as one:
        yield one


def bus_socket(path: str | bytes, kind: socket.SocketKind = socket.SOCK_SEQPACKET) -> int:
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(path)
    if kind != socket.SOCK_DGRAM:
        sock.listen()
    return sock.detach()


def udp_socket(port: int = 0, host: str = "0.0.0.0", device: str = "") -> int:
    return bound_udp(host, port, device=device).detach()


def tcp_socket(host: str = "127.0.0.1") -> int:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.bind((host, 0))
    sock.listen()
    return sock.detach()


def files(*found: socket.socket | int) -> list[int]:
    return [os.fstat(one if isinstance(one, int) else one.fileno()).st_ino for one in found]


def refusal(
    name: str, passed: int, *parts: str, buses: Sequence[str] = (), segments: Sequence[SegmentOptions] = ()
) -> None:
    """Check that a passed socket is refused, that the refusal names these parts, and that the socket is closed."""
    sockets = ActivatedSockets([(name, passed)])
    with pytest.raises(StartError) as caught:
        sockets.assign(buses, segments, metrics=False)
    sockets.close()
    assert caught.value.reason == "socket_mismatch"
    assert [part for part in parts if part not in caught.value.detail + caught.value.remedy] == []
    with pytest.raises(OSError):
        os.fstat(passed)


@pytest.mark.parametrize("seed", range(3))
def test_each_socket_finds_what_it_serves_in_any_order(tmp_path: Path, stack: ExitStack, seed: int) -> None:
    ports = [free_port(), free_port()]
    paths = [str(tmp_path / "one"), str(tmp_path / "two"), f"@bccnd-test-{os.getpid()}"]
    made = {
        "one": bus_socket(paths[0]),
        "two": bus_socket(paths[1]),
        "abstract": bus_socket(b"\0" + paths[2][1:].encode()),
        "first": udp_socket(ports[0]),
        "second": udp_socket(ports[1]),
        "127.0.0.1": tcp_socket(),
        "127.0.0.2": tcp_socket("127.0.0.2"),
    }
    was = dict(zip(made, files(*made.values()), strict=True))
    # All are called the same, as those of one socket unit are.
    passed = [("bccnd.socket", fd) for fd in made.values()]
    random.Random(seed).shuffle(passed)
    sockets = stack.enter_context(closing(ActivatedSockets(passed)))
    segments = [options("second", ports[1]), options("first", ports[0])]
    sockets.assign([paths[2], paths[1], paths[0]], segments, metrics=True)
    for name, path in zip(("one", "two", "abstract"), paths, strict=True):
        listener, ours = sockets.open_bus(path, 0o660, None)
        assert (files(listener), ours, listener.getblocking()) == ([was[name]], False, False)
    for segment in segments:
        opened = sockets.open_segment(segment)
        assert files(opened.sock) == [was[segment.name]]
        assert opened.sock.getblocking() is False
    served = [*(f"bus {path}" for path in paths), "segment second", "segment first"]
    # Metrics are served wherever they are passed, not where the configuration says.
    for visitors in sockets.open_metrics(("127.0.0.1", free_port())):
        host, number = visitors.getsockname()
        assert (files(visitors), visitors.getblocking()) == ([was.pop(host)], False)
        served.append(f"metrics {host}:{number}")
    assert (sockets.served, len(was)) == (served, 5)


def test_a_bus_is_known_by_any_path_to_it_and_by_its_descriptor(tmp_path: Path, stack: ExitStack) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").symlink_to(tmp_path / "run")
    fds = [bus_socket(str(tmp_path / "run/bus.sock")), bus_socket(str(tmp_path / "bus"))]
    sockets = stack.enter_context(closing(ActivatedSockets([("bus", fd) for fd in fds])))
    paths = [str(tmp_path / "var/../var/bus.sock"), f"/dev/fd/{fds[1]}"]
    sockets.assign(paths, [], metrics=False)
    found = [sockets.open_bus(path, 0o600, None) for path in paths]
    assert [(listener.fileno(), ours) for listener, ours in found] == [(fd, False) for fd in fds]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_on_one_port_name_then_interface_then_address_decide(stack: ExitStack, order: tuple[int, ...]) -> None:
    port = free_port()
    segments = [
        options("by name", port),
        options("by interface", port, device="lo"),
        options("by address", port, address=GROUP, device="lo"),
    ]
    passed = [
        ("by name", udp_socket(port, device="lo")),  # by all else it would be the second
        ("udp", udp_socket(port)),
        ("udp", udp_socket(port, GROUP)),
    ]
    was = files(*(fd for _, fd in passed))
    sockets = stack.enter_context(closing(ActivatedSockets([passed[number] for number in order])))
    sockets.assign([], [segments[number] for number in order], metrics=False)
    assert [files(sockets.open_segment(one).sock)[0] for one in segments] == was


def test_sockets_that_are_alike_serve_one_segment_each(stack: ExitStack) -> None:
    port = free_port()
    fds = [udp_socket(port), udp_socket(port)]
    sockets = stack.enter_context(closing(ActivatedSockets([("udp", fd) for fd in fds])))
    segments = [options("a", port), options("b", port, address="255.255.255.255")]
    sockets.assign([], segments, metrics=False)
    assert sorted(sockets.open_segment(one).sock.fileno() for one in segments) == sorted(fds)


def test_a_bus_that_is_not_configured_is_refused_with_what_is(tmp_path: Path) -> None:
    there, wanted = str(tmp_path / "there"), str(tmp_path / "wanted")
    refusal("x.socket", bus_socket(there), "x.socket", there, wanted, "ListenSequentialPacket=", buses=[wanted])
    name = f"bccnd-test-{os.getpid()}"
    refusal("bus", bus_socket(f"\0{name}"), f"@{name}", buses=["@other"])
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        path = str(tmp_path / kind.name)
        refusal("unit", bus_socket(path, kind), "unit", kind.name, path, buses=[path])


def test_sockets_for_other_segments_or_no_metrics_are_refused() -> None:
    other, port, second = free_port(), free_port(), free_port()
    segments = [options("lan", port), options("wan", second)]
    for name in ("udp", "lan"):
        refusal(name, udp_socket(other), f"0.0.0.0:{other}", str(port), str(second), segments=segments)
    elsewhere = [options(port=port, device="eth7")]
    refusal("udp", udp_socket(port, device="lo"), f"0.0.0.0:{port} on lo", "on eth7", segments=elsewhere)
    refusal("metrics", tcp_socket(), "metrics.listen", "ListenStream=")
    try:
        fd = udp_socket(port, "::1")
    except OSError:
        cannot_here("this host has no ::1")
    refusal("udp", fd, f"[::1]:{port}", segments=segments)


def test_stored_descriptors_are_left_alone(tmp_path: Path, stack: ExitStack) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stack.enter_context(theirs)
    listening = bus_socket(str(tmp_path / "strange"))
    stored = [
        ("client-12", ours.detach()),
        ("memory", os.memfd_create("memory")),
        ("sources-3", os.memfd_create("sources")),
        ("ledger", os.memfd_create("ledger")),
        ("of-a-later-version", os.memfd_create("x")),
        ("client-13", listening),  # whatever it is
        ("stored", os.open("/dev/null", os.O_RDONLY)),
    ]
    bus = bus_socket(str(tmp_path / "bus"))
    sockets = ActivatedSockets([*stored[:3], ("bus", bus), *stored[3:]], is_stored=is_stored)
    sockets.assign([str(tmp_path / "bus")], [], metrics=False)
    sockets.close()
    assert sockets.stored == stored
    for _, fd in stored:
        os.fstat(fd)  # they are still open
        os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(bus)


@pytest.mark.parametrize(
    ("mode", "group", "warned"), [(0o660, 0, False), (0o600, 0, True), (0o666, 0, True), (0o660, 1, True)]
)
def test_another_mode_or_group_than_configured_is_logged(
    tmp_path: Path, stack: ExitStack, caplog: pytest.LogCaptureFixture, mode: int, group: int, warned: bool
) -> None:
    path = str(tmp_path / "bus")
    sockets = ActivatedSockets([("bus", bus_socket(path))])
    os.chmod(path, 0o660)
    stack.callback(sockets.close)
    sockets.assign([path], [], metrics=False)
    sockets.open_bus(path, mode, os.stat(path).st_gid + 1 if group else None)
    assert bool(caplog.text) is warned
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o660


@pytest.mark.parametrize("service", [False, True])
def test_remedies_mention_socket_units_only_to_services(service: bool) -> None:
    """There is no such interface and no such address; the last one is a mistake in the configuration."""
    sockets = ActivatedSockets(service=service)
    remedies = []
    for attempt in (
        lambda: sockets.open_segment(replace(options("lan", 5401), interface="nosuch0")),
        lambda: sockets.open_metrics(("192.0.2.1", 1)),
        lambda: sockets.open_segment(options("lan", 5401, address="127.0.0.1")),
    ):
        with pytest.raises(StartError) as caught:
            attempt()
        remedies.append(caught.value.remedy)
    assert ["ListenDatagram=0.0.0.0:5401" in one for one in remedies] == [service, False, False]
    assert ["ListenStream=" in one for one in remedies] == [False, service, False]
    assert caught.value.reason == "no_broadcast_address"
