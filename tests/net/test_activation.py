"""What a passed socket serves: it is known by what it is, in whatever order it came, and none is left over unsaid."""

from __future__ import annotations

import itertools
import os
import random
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bccnd.core.bccn1 import MAX_RECEIVE
from bccnd.errors import StartError
from bccnd.net.activation import Sockets
from bccnd.net.segment import SegmentOptions
from tests.support import BROADCAST, cannot_here, free_port, need_root

GROUP = "239.255.54.11"

Opens = Callable[..., int]


def options(
    name: str = "here", port: int = 5400, address: str = BROADCAST, interface: str | None = None
) -> SegmentOptions:
    return SegmentOptions(name, address, port, interface=interface, receive_buffer=65_536, largest=MAX_RECEIVE)


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
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    if device:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if ":" in host:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind((host, port))
    return sock.detach()


def tcp_socket(host: str = "127.0.0.1") -> int:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.bind((host, 0))
    sock.listen()
    return sock.detach()


def files(*found: socket.socket | int) -> list[int]:
    return [os.fstat(one if isinstance(one, int) else one.fileno()).st_ino for one in found]


def refusal(sockets: Sockets, buses: list[str], segments: list[SegmentOptions], metrics: bool = True) -> StartError:
    """Why what was passed does not fit; every refusal says what to do."""
    with pytest.raises(StartError) as caught:
        sockets.assign(buses, segments, metrics)
    sockets.close()
    assert caught.value.reason == "socket_mismatch"
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("seed", range(6))
def test_each_socket_finds_what_it_serves_in_whatever_order_they_came(
    tmp_path: Path, stack: ExitStack, seed: int
) -> None:
    ports = [free_port(), free_port()]
    paths = [str(tmp_path / "one"), str(tmp_path / "two"), f"@bccnd-test-{os.getpid()}"]
    made = {
        "one": bus_socket(paths[0]),
        "two": bus_socket(paths[1]),
        "abstract": bus_socket(b"\0" + paths[2][1:].encode()),
        "first": udp_socket(ports[0]),
        "second": udp_socket(ports[1]),
        "metrics": tcp_socket(),
    }
    was = dict(zip(made, files(*made.values()), strict=True))
    # All are called the same, as those of one socket unit are.
    passed = [("bccnd.socket", fd) for fd in made.values()]
    random.Random(seed).shuffle(passed)
    sockets = Sockets(passed)
    stack.callback(sockets.close)
    segments = [options("second", ports[1]), options("first", ports[0])]
    sockets.assign([paths[2], paths[1], paths[0]], segments, metrics=True)
    for name, path in zip(("one", "two", "abstract"), paths, strict=True):
        listener, ours = sockets.open_bus(path, 0o660, None)
        assert (files(listener), ours, listener.getblocking()) == ([was[name]], False, False)
    for segment in segments:
        opened = sockets.open_segment(segment)
        assert files(opened.sock) == [was[segment.name]]
        assert opened.sock.getblocking() is False
    (visitors,) = sockets.open_metrics(None)
    assert (files(visitors), visitors.getblocking()) == ([was["metrics"]], False)
    port = visitors.getsockname()[1]
    assert sockets.served == [
        *(f"bus {path}" for path in paths),
        "segment second",
        "segment first",
        f"metrics 127.0.0.1:{port}",
    ]


def test_what_was_not_passed_is_opened_as_usual(tmp_path: Path, stack: ExitStack) -> None:
    sockets = Sockets()
    path, segment = str(tmp_path / "bus"), options(port=free_port())
    sockets.assign([path], [segment], metrics=True)
    listener, ours = sockets.open_bus(path, 0o600, None)
    stack.callback(listener.close)
    assert ours
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    opened = sockets.open_segment(segment)
    stack.callback(opened.close)
    assert opened.sock.getsockname() == ("0.0.0.0", segment.port)
    (visitors,) = sockets.open_metrics(("127.0.0.1", 0))
    visitors.close()
    assert sockets.open_metrics(None) == []
    assert sockets.served == []


def test_a_socket_that_is_known_by_another_way_to_its_path_is_the_same(tmp_path: Path, stack: ExitStack) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").symlink_to(tmp_path / "run")
    sockets = Sockets([("bus", bus_socket(str(tmp_path / "run/bus.sock")))])
    stack.callback(sockets.close)
    path = str(tmp_path / "var/../var/bus.sock")
    sockets.assign([path], [], metrics=False)
    assert sockets.open_bus(path, 0o600, None)[1] is False


def test_a_bus_that_is_configured_by_the_number_of_a_passed_descriptor_is_that(
    tmp_path: Path, stack: ExitStack
) -> None:
    fd = bus_socket(str(tmp_path / "bus"))
    sockets = Sockets([("bus", fd)])
    stack.callback(sockets.close)
    sockets.assign([f"/dev/fd/{fd}"], [], metrics=False)
    assert sockets.open_bus(f"/dev/fd/{fd}", 0o600, None)[0].fileno() == fd


# -- segments that have more in common


@pytest.mark.root
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_of_segments_on_one_port_the_name_decides_then_the_interface_then_the_address(
    stack: ExitStack, order: tuple[int, ...]
) -> None:
    need_root("an older kernel lets only root name an interface")
    port = free_port()
    segments = [
        options("by name", port),
        options("by interface", port, interface="lo"),
        options("by address", port, address=GROUP, interface="lo"),
    ]
    passed = [
        ("by name", udp_socket(port, device="lo")),  # by all else it would be the second
        ("udp", udp_socket(port)),
        ("udp", udp_socket(port, GROUP)),
    ]
    was = files(*(fd for _, fd in passed))
    sockets = Sockets([passed[number] for number in order])
    stack.callback(sockets.close)
    sockets.assign([], [segments[number] for number in order], metrics=False)
    assert [files(sockets.open_segment(one).sock)[0] for one in segments] == was


@pytest.mark.root
def test_a_socket_bound_to_another_interface_is_another_segments(stack: ExitStack) -> None:
    need_root("an older kernel lets only root name an interface")
    port = free_port()
    sockets = Sockets([("udp", udp_socket(port, device="lo"))])
    refused = refusal(sockets, [], [options(port=port, interface="eth7")])
    assert f"0.0.0.0:{port} on lo" in refused.detail
    assert "on eth7" in refused.detail


def test_sockets_that_are_alike_serve_one_segment_each(stack: ExitStack) -> None:
    port = free_port()
    sockets = Sockets([("udp", udp_socket(port)), ("udp", udp_socket(port))])
    stack.callback(sockets.close)
    segments = [options("a", port), options("b", port, address="255.255.255.255")]
    sockets.assign([], segments, metrics=False)
    assert sorted(sockets._segment_of) == ["a", "b"]
    assert len({one.sock.fileno() for one in sockets._segment_of.values()}) == 2


# -- what fits nothing


def test_a_bus_at_another_path_is_refused_with_both(tmp_path: Path) -> None:
    there, wanted = str(tmp_path / "there"), str(tmp_path / "wanted")
    refused = refusal(Sockets([("bccnd-bus.socket", bus_socket(there))]), [wanted], [])
    assert (
        f"bus.path: the socket unit bccnd-bus.socket listens at {there}, the configuration says {wanted}"
        == refused.detail
    )
    assert "make them agree" in refused.remedy
    assert "ListenSequentialPacket=" in refused.remedy


def test_one_bus_more_than_configured_is_refused(tmp_path: Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    refused = refusal(Sockets([("bus", bus_socket(one)), ("bus", bus_socket(two))]), [one], [])
    assert f"listens at {two}, the configuration has no use for it" in refused.detail


def test_an_abstract_bus_is_named_as_people_write_it() -> None:
    name = f"bccnd-test-{os.getpid()}"
    assert f"listens at @{name}," in refusal(Sockets([("bus", bus_socket(f"\0{name}"))]), ["@other"], []).detail


def test_a_segment_on_another_port_is_refused_with_both() -> None:
    port, other = free_port(), free_port()
    refused = refusal(Sockets([("udp", udp_socket(other))]), [], [options("lan", port), options("wan", port + 1)])
    assert f"segments: the socket unit udp listens at 0.0.0.0:{other}" in refused.detail
    assert f"the configuration says lan (inet port {port}) and wan (inet port {port + 1})" in refused.detail
    assert "ListenDatagram=" in refused.remedy


def test_a_segment_of_another_family_is_refused() -> None:
    port = free_port()
    try:
        fd = udp_socket(port, "::1")
    except OSError:
        cannot_here("this host has no ::1")
    refused = refusal(Sockets([("udp", fd)]), [], [options("lan", port)])
    assert f"[::1]:{port}" in refused.detail


def test_the_name_alone_does_not_make_it_a_segments_socket() -> None:
    port, other = free_port(), free_port()
    assert "listens at" in refusal(Sockets([("lan", udp_socket(other))]), [], [options("lan", port)]).detail


def test_metrics_that_are_off_are_not_served() -> None:
    refused = refusal(Sockets([("metrics", tcp_socket())]), [], [], metrics=False)
    assert "metrics.listen: the socket unit metrics listens at 127.0.0.1:" in refused.detail
    assert "the configuration says off" in refused.detail


def test_metrics_are_served_wherever_they_are_passed(stack: ExitStack) -> None:
    sockets = Sockets([("metrics", tcp_socket()), ("metrics", tcp_socket("127.0.0.2"))])
    stack.callback(sockets.close)
    sockets.assign([], [], metrics=True)
    passed = sockets.open_metrics(("127.0.0.1", free_port()))
    assert [one.getsockname()[0] for one in passed] == ["127.0.0.1", "127.0.0.2"]


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_of_a_kind_that_nothing_here_is_of_is_refused(tmp_path: Path, kind: socket.SocketKind) -> None:
    path = str(tmp_path / "bus")
    refused = refusal(Sockets([("bccnd-bus.socket", bus_socket(path, kind))]), [path], [])
    assert "bccnd-bus.socket" in refused.detail
    assert f"AF_UNIX, {kind.name}, at {path}" in refused.detail
    assert "ListenSequentialPacket= is for the bus" in refused.remedy


def test_what_a_predecessor_has_stored_is_none_of_this(tmp_path: Path, stack: ExitStack) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stack.enter_context(theirs)
    listening = bus_socket(str(tmp_path / "strange"))
    stored = [
        ("client-12", ours.detach()),
        ("state-12", os.memfd_create("state")),
        ("sources-3", os.memfd_create("sources")),
        ("ledger", os.memfd_create("ledger")),
        ("of-a-later-version", os.memfd_create("x")),
        ("client-13", listening),  # whatever it is
        ("stored", os.open("/dev/null", os.O_RDONLY)),
    ]
    bus = bus_socket(str(tmp_path / "bus"))
    sockets = Sockets([*stored[:3], ("bus", bus), *stored[3:]])
    sockets.assign([str(tmp_path / "bus")], [], metrics=False)
    sockets.close()
    assert sockets.stored == stored
    for _, fd in stored:
        os.fstat(fd)  # they are still open
        os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(bus)


# -- what is said


@pytest.mark.parametrize(("mode", "said"), [(0o660, False), (0o600, True), (0o666, True)])
def test_a_file_that_admits_others_than_configured_is_said(
    tmp_path: Path, stack: ExitStack, caplog: pytest.LogCaptureFixture, mode: int, said: bool
) -> None:
    path = str(tmp_path / "bus")
    sockets = Sockets([("bus", bus_socket(path))])
    os.chmod(path, 0o660)
    stack.callback(sockets.close)
    sockets.assign([path], [], metrics=False)
    sockets.open_bus(path, mode, None)
    assert ("the unit decides" in caplog.text) is said
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o660


def test_a_file_of_another_group_than_configured_is_said(
    tmp_path: Path, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "bus")
    sockets = Sockets([("bus", bus_socket(path))])
    stack.callback(sockets.close)
    os.chmod(path, 0o660)
    sockets.assign([path], [], metrics=False)
    sockets.open_bus(path, 0o660, os.stat(path).st_gid + 1)
    assert f"group {os.stat(path).st_gid + 1}" in caplog.text


def nowhere(service: bool) -> tuple[str, str]:
    """What is said of a segment and of metrics that cannot be had, for want of an interface and of an address."""
    sockets = Sockets(service=service)
    segment = replace(options("lan", 5401), interface="nosuch0")
    said = []
    for attempt in (lambda: sockets.open_segment(segment), lambda: sockets.open_metrics(("192.0.2.1", 1))):
        with pytest.raises(StartError) as caught:
            attempt()
        said.append(caught.value.remedy)
    return said[0], said[1]


def test_a_service_is_told_of_socket_units_and_others_are_not() -> None:
    segment, visitors = nowhere(service=True)
    assert "ListenDatagram=0.0.0.0:5401, Broadcast=yes, Service=bccnd.service" in segment
    assert "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK" in segment
    assert "ListenStream=" in visitors
    segment, visitors = nowhere(service=False)
    assert "Listen" not in segment + visitors


def test_a_mistake_in_the_configuration_is_not_blamed_on_the_service() -> None:
    with pytest.raises(StartError) as caught:
        Sockets(service=True).open_segment(options("lan", 5401, address="127.0.0.1"))
    assert caught.value.reason == "no_broadcast_address"
    assert "ListenDatagram" not in caught.value.remedy
