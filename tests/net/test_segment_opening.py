"""UDP sockets: addresses, reception, options, and refusals with their causes."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bccnd.errors import StartError
from bccnd.net.segment_opening import (
    UdpOptions,
    adopt_udp,
    bound_device,
    destination,
    grow_receive_buffer,
    grow_send_buffer,
    interface_name,
    open_udp,
)
from tests.limits import descriptors
from tests.net.sockets import bound_udp, broadcaster
from tests.support import BROADCAST, cannot_here, free_port, need_root, wait, without_root

GROUP = "239.255.54.1"
OTHER_GROUP = "239.255.54.2"
GROUP6 = "ff02::bcc:7"
LO = socket.if_nametoindex("lo")
#: <linux/in.h> and <linux/in6.h>
IP_MULTICAST_ALL = 49
IPV6_MULTICAST_ALL = 29

Opens = Callable[..., socket.socket]


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def opens(port: int) -> Iterator[Opens]:
    """Opens sockets on one port, for broadcast if nothing else is said, and closes them at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda address=BROADCAST, **more: stack.enter_context(open_udp(options(address, port, **more)))


def options(address: str = BROADCAST, port: int = 5400, **more: Any) -> UdpOptions:
    """Multicast takes the loopback interface, so that it works without a way out and stays here."""
    if ipaddress.ip_address(address).is_multicast:
        more = {"interface": "lo", **more}
    if ":" in address and not has_ipv6():
        cannot_here("this host has no IPv6")
    return UdpOptions("here", address, port, **more)


def refusal(wanted: UdpOptions, passed: socket.socket | None = None) -> StartError:
    """Why a socket cannot be had, or taken over; that names the segment and a remedy, and opens and closes nothing."""
    before = descriptors()
    with pytest.raises(StartError) as caught:
        adopt_udp(passed, wanted) if passed else open_udp(wanted).close()
    assert descriptors() == before
    assert caught.value.remedy
    assert "segment here: " in caught.value.detail
    return caught.value


def say(text: bytes, address: str, port: int) -> None:
    """Another program of this host says something: to everybody, to a group, or to one address."""
    with broadcaster() as sock:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("=4s4si", b"\0" * 4, b"\0" * 4, LO))
        sock.sendto(text, (address, port))


def hears(sock: socket.socket, until: bytes) -> list[bytes]:
    """All that a socket hears up to the datagram that ends it; what was sent before that one has come or never will."""
    heard: list[bytes] = []

    def done() -> bool:
        with contextlib.suppress(BlockingIOError):
            while True:
                heard.append(sock.recv(2000))
        return until in heard

    wait(done, f"{until!r}")
    return heard


def has_all_options(sock: socket.socket, address: str, hop_limit: int = 1) -> None:
    """A socket for a segment shares its port, never blocks, and takes no groups that other programs have joined."""
    assert (sock.family, sock.type) == (options(address).family, socket.SOCK_DGRAM)
    assert sock.getblocking() is False
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    if address == BROADCAST:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)
    else:  # these take the loopback
        assert bound_device(sock) == "lo"
    if sock.family == socket.AF_INET:
        assert sock.getsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL) == 0
    elif sock.getsockname()[0] == "::":
        assert sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
    if address == GROUP:
        assert sock.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == hop_limit
        assert sock.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP) == 1
    if address == GROUP6:
        names = IPV6_MULTICAST_ALL, socket.IPV6_MULTICAST_HOPS, socket.IPV6_MULTICAST_LOOP, socket.IPV6_MULTICAST_IF
        assert [sock.getsockopt(socket.IPPROTO_IPV6, name) for name in names] == [0, hop_limit, 1, LO]


@pytest.mark.parametrize(
    ("address", "bind", "place"),
    [
        *((BROADCAST, bind, bind or "0.0.0.0") for bind in (None, "0.0.0.0", BROADCAST)),
        *((GROUP, bind, bind or GROUP) for bind in (None, "0.0.0.0", GROUP)),
        *((GROUP6, bind, bind or GROUP6) for bind in (None, "::", GROUP6)),
    ],
)
@pytest.mark.parametrize("hop_limit", [1, 255])
def test_a_socket_is_bound_as_it_should(
    opens: Opens, port: int, address: str, bind: str | None, place: str, hop_limit: int
) -> None:
    sock = opens(address, bind=bind, hop_limit=hop_limit)
    assert sock.getsockname()[:2] == (place, port)
    has_all_options(sock, address, hop_limit)
    if address != GROUP6:
        say(b"hello", address, port)
        assert hears(sock, b"hello") == [b"hello"]


def test_a_group_takes_nothing_but_what_its_address_says(opens: Opens, port: int) -> None:
    group, other, everybody, wide = opens(GROUP), opens(OTHER_GROUP), opens(), opens(GROUP, bind="0.0.0.0")
    for address in (BROADCAST, OTHER_GROUP, GROUP):
        say(address.encode(), address, port)
    for address in (OTHER_GROUP, GROUP, BROADCAST):
        say(b"end", address, port)
    assert hears(group, b"end") == [GROUP.encode(), b"end"]
    assert hears(other, b"end") == [OTHER_GROUP.encode(), b"end"]
    # What listens for broadcast does not get the groups that others of this host have joined.
    assert hears(everybody, b"end") == [BROADCAST.encode(), b"end"]
    assert hears(wide, b"end")[:2] == [BROADCAST.encode(), GROUP.encode()]


def members(address: str) -> bool:
    """Whether anybody in this network listens to a group on the loopback interface."""
    shown = subprocess.run(["ip", "maddress", "show", "dev", "lo"], check=True, capture_output=True, text=True).stdout
    return address in shown.split()


#: address, further options, reason, a part of what is refused
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    *((address, {"interface": "nosuch0"}, "no_interface", "nosuch0") for address in (BROADCAST, GROUP, GROUP6)),
    *(
        (address, {"interface": None, "bind": bind}, "no_interface", address)
        for address in ("ff01::bcc", "ff02::bcc", "ff12::bcc", GROUP6)
        for bind in (None, "::")
    ),
    *((address, {}, "no_broadcast_address", address) for address in ("127.0.0.1", "127.1.2.3", "0.0.0.0")),
    *((BROADCAST, {"bind": bind}, "bind_misses_broadcast", bind) for bind in ("127.0.0.1", GROUP)),
    *((GROUP, {"bind": bind}, "bind_misses_broadcast", bind) for bind in ("127.0.0.1", OTHER_GROUP)),
    (GROUP6, {"bind": "::1"}, "bind_misses_broadcast", "::1"),
]


@pytest.mark.parametrize(("address", "more", "reason", "detail"), REFUSED)
def test_what_cannot_work_is_refused(address: str, more: dict[str, Any], reason: str, detail: str) -> None:
    refused = refusal(options(address, **more))
    assert (refused.reason, detail in refused.detail) == (reason, True)


@pytest.mark.parametrize(
    ("call", "error", "reason", "addresses"),
    [
        # An older kernel, where only root may name an interface.
        ("setsockopt", errno.EPERM, "interface_refused", (BROADCAST, GROUP)),
        ("bind", errno.EADDRNOTAVAIL, "bind_failed", (BROADCAST, GROUP, GROUP6)),
        # A service with RestrictAddressFamilies=.
        ("__init__", errno.EAFNOSUPPORT, "no_socket", (BROADCAST,)),
    ],
)
def test_what_the_kernel_refuses_is_reported(
    call: str, error: int, reason: str, addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(socket.socket, call)

    def fail(*arguments: Any) -> Any:
        if call != "setsockopt" or arguments[1:3] == (socket.SOL_SOCKET, socket.SO_BINDTODEVICE):
            raise OSError(error, os.strerror(error))
        return original(*arguments)

    wanted = [options(address, interface="lo") for address in addresses]
    monkeypatch.setattr(socket, "socket", type("Failing", (socket.socket,), {call: fail}))
    assert [refusal(one).reason for one in wanted] == [reason] * len(wanted)


@pytest.mark.parametrize(("address", "place"), [(BROADCAST, "0.0.0.0"), (GROUP, "0.0.0.0"), (GROUP6, "::")])
def test_a_port_that_another_program_does_not_share_is_refused(address: str, place: str) -> None:
    wanted = options(address)
    with socket.socket(wanted.family, socket.SOCK_DGRAM) as selfish:
        selfish.bind((place, 0))
        port = selfish.getsockname()[1]
        refused = refusal(replace(wanted, port=port))
    assert (refused.reason, f":{port}" in refused.detail) == ("port_in_use", True)


@pytest.mark.parametrize("address", [BROADCAST, GROUP, GROUP6])
def test_a_port_of_root_is_refused_without_root(address: str, tmp_path: Path) -> None:
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 1:
        pytest.skip("this host lets everybody bind every port")
    wanted = options(address, port=1)
    with without_root(tmp_path):
        assert refusal(wanted).reason == "port_refused"


@pytest.fixture
def passes(port: int) -> Iterator[Opens]:
    """Binds sockets as systemd does, to everything if nothing else is said, and closes them at the end."""
    with contextlib.ExitStack() as stack:

        def one(host: str = "0.0.0.0", **more: Any) -> socket.socket:
            if ":" in host and not has_ipv6():
                cannot_here("this host has no IPv6")
            return stack.enter_context(bound_udp(host, port, **more))

        yield one


@pytest.mark.parametrize("host", ["0.0.0.0", BROADCAST])
def test_a_passed_socket_sends_and_has_what_came_before(passes: Opens, port: int, host: str) -> None:
    sock = passes(host)
    say(b"before", BROADCAST, port)
    assert adopt_udp(sock, options(port=port)) == []
    say(b"after", BROADCAST, port)
    # Among it nothing that looking for a way might have sent.
    assert hears(sock, b"after") == [b"before", b"after"]
    assert sock.sendto(b"ours", (BROADCAST, port)) == 4
    assert hears(sock, b"ours") == [b"ours"]
    has_all_options(sock, BROADCAST)
    # The same socket, at the next start.
    assert adopt_udp(sock, options(port=port)) == []


@pytest.mark.parametrize(("address", "host"), [(GROUP, "0.0.0.0"), (GROUP, GROUP), (GROUP6, "::")])
def test_a_passed_socket_joins_its_group_at_every_start(passes: Opens, port: int, address: str, host: str) -> None:
    sock, wanted = passes(host), options(address, port, hop_limit=3)
    assert not members(address)
    for _ in range(3):
        assert adopt_udp(sock, wanted) == []
        assert members(address)
    has_all_options(sock, address, 3)
    assert destination(wanted)[:2] == (address, port)
    if address == GROUP:
        say(b"hello", GROUP, port)
        assert hears(sock, b"hello") == [b"hello"]


def test_a_passed_socket_must_fit_the_segment(passes: Opens, port: int) -> None:
    for host in ("127.0.0.1", OTHER_GROUP):
        assert refusal(options(port=port), passes(host)).reason == "bind_misses_broadcast"
    sock = passes()
    assert refusal(options("127.0.0.1", port), sock).reason == "no_broadcast_address"
    assert refusal(options(port=port, bind="127.0.0.1"), sock).reason == "bind_misses_broadcast"
    # The attempt has not left it unable to broadcast.
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)


def test_what_is_strange_about_a_passed_socket_is_a_warning(passes: Opens, port: int) -> None:
    assert len(adopt_udp(passes(device="lo"), options(port=port))) == 1
    assert adopt_udp(passes(device="lo"), options(port=port, interface="lo")) == []
    assert len(adopt_udp(passes("::", v6only=False), options(GROUP6, port))) == 1


def size(sock: socket.socket, option: int) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, option) // 2


@pytest.mark.root
@pytest.mark.parametrize(
    ("grow", "option", "force", "limit"),
    [(grow_receive_buffer, socket.SO_RCVBUF, 33, "rmem_max"), (grow_send_buffer, socket.SO_SNDBUF, 32, "wmem_max")],
)
def test_a_granted_buffer_is_never_made_smaller(
    passes: Opens, tmp_path: Path, grow: Callable[[socket.socket, int], int], option: int, force: int, limit: str
) -> None:
    need_root("granting more than everybody gets")
    most = int(Path(f"/proc/sys/net/core/{limit}").read_text())
    sock = passes()
    sock.setsockopt(socket.SOL_SOCKET, force, 2 * most)
    with without_root(tmp_path):
        # Less than there is, as much, more than there is: more than everybody gets all of them.
        for wanted in (1000, most + 1, 2 * most, 4 * most):
            assert grow(sock, wanted) == 2 * most
    assert grow(sock, 1000) == size(sock, option) == 2 * most
    # Whoever may have more has it made larger.
    assert grow(sock, 3 * most) == size(sock, option) == 3 * most


def test_an_address_without_a_route_is_refused(port: int) -> None:
    if len(Path("/proc/net/route").read_text().splitlines()) > 1:
        cannot_here("this process has no network of its own")
    for address in ("255.255.255.255", GROUP, *(["ff05::bcc", "ff0e::bcc"] if has_ipv6() else [])):
        refused = refusal(UdpOptions("here", address, port))
        assert (refused.reason, address in refused.detail) == ("no_route", True)


def test_an_interface_is_named_by_the_socket(opens: Opens) -> None:
    assert interface_name(opens(), LO) == "lo"
    with pytest.raises(OSError):
        interface_name(opens(), 2**31 - 1)
