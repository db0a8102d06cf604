"""Interfaces that are deleted, made anew or renamed: decisions, log, and real sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bccnd.net.interface_watch import Interface, InterfaceWatch, judge
from bccnd.net.loop import READABLE, Loop
from bccnd.net.segment import Segment, SegmentOptions
from tests.e2e.harness import inside
from tests.e2e.network import ip
from tests.support import cannot_here, wait, without_root


@pytest.mark.parametrize(
    ("bound", "named", "up", "found"),
    [
        (3, 3, True, Interface.PRESENT),
        (3, 3, False, Interface.REPLACED),  # it was away, with its memberships
        (0, 4, True, Interface.REPLACED),
        (0, 4, False, Interface.REPLACED),
        (3, 4, True, Interface.REPLACED),  # its name was given to another one
        (0, 0, True, Interface.GONE),
        (0, 0, False, Interface.GONE),
        (3, 0, True, Interface.RENAMED),
        (3, 0, False, Interface.GONE),
    ],
)
def test_numbers_of_interfaces_decide(bound: int, named: int, up: bool, found: Interface) -> None:
    assert judge(bound, named, up=up) is found


NAME = f"bciw{os.getpid() % 100_000}"


def make(address: str = "10.79.0.1/24") -> None:
    """Make the interface, with its other end."""
    ip("-n", NAME, "link", "add", "lan7", "type", "veth", "peer", "name", "far")
    ip("-n", NAME, "address", "add", address, "brd", "+", "dev", "lan7")
    for end in ("far", "lan7"):
        ip("-n", NAME, "link", "set", end, "up")


def delete() -> None:
    ip("-n", NAME, "link", "delete", "lan7")


@pytest.fixture
def namespace() -> Iterator[None]:
    """A network namespace with the interface, in which the test runs."""
    try:
        ip("netns", "add", NAME)
    except (OSError, subprocess.CalledProcessError):
        cannot_here("cannot make network namespaces (it takes root and iproute2)")
    try:
        make()
        with inside(NAME):
            yield
    finally:
        subprocess.run(["ip", "netns", "delete", NAME], check=False, capture_output=True)


OPTIONS = SegmentOptions("lan", "10.79.0.255", 5400, bind="0.0.0.0", interface="lan7", receive_buffer=4096)
GROUP = replace(OPTIONS, address="239.1.2.3", bind=None)


class Watched:
    """A watch on a real segment."""

    def __init__(self, loop: Loop, segment: Segment) -> None:
        self.segment = segment
        self.received: list[bytes] = []
        self._loop = loop
        self._watch = InterfaceWatch(loop, segment, self._drain, self._begin)
        self._begin()

    def _begin(self) -> None:
        self._loop.watch(self.segment.fileno(), READABLE, lambda _events: None)

    def _drain(self) -> bool:
        try:
            self.received += self.segment.receiver.receive()
        except BlockingIOError:
            return False
        return True

    def check(self) -> bool:
        """Look until there is nothing more to drain; return whether the interface is used."""
        for _ in range(100):
            self._watch.check()
        return self.segment.up

    def hears_itself(self) -> None:
        """What it sends goes out, and comes back to it, as to every other program."""
        self.received.clear()
        assert self.segment.sender.send(b"hello") is None
        wait(lambda: not self._drain() and b"hello" in self.received)


@pytest.fixture
def watched(loop: Loop, namespace: None) -> Iterator[Watched]:
    with contextlib.closing(Segment(OPTIONS)) as segment:
        yield Watched(loop, segment)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The events since the last call."""
    events = [str(getattr(record, "event", "")) for record in caplog.records]
    caplog.clear()
    return [name for name in events if name.startswith("interface_")]


@pytest.mark.root
def test_a_segment_continues_on_an_interface_that_was_made_anew(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    segment = watched.segment
    descriptor, receiver = segment.fileno(), segment.receiver
    for _ in range(50):
        segment.sender.send(b"x" * 1000)
    drops = segment.kernel_drops()
    assert drops > 0
    assert watched.check()
    assert logged(caplog) == []

    delete()
    assert not watched.check()
    assert segment.sender.send(b"lost") == "ENODEV"
    make()
    assert watched.check()
    assert watched.received == [b"x" * 1000] * (50 - drops)
    assert logged(caplog) == ["interface_gone", "interface_back"]
    watched.hears_itself()

    # Within a second, so that it was never seen to be away.
    delete()
    make()
    assert watched.check()
    assert logged(caplog) == ["interface_back"]
    watched.hears_itself()
    assert (segment.fileno(), segment.receiver, segment.counters.reopened) == (descriptor, receiver, 2)
    assert segment.kernel_drops() == drops


@pytest.mark.root
def test_a_segment_waits_for_an_interface_until_it_can_be_used(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    delete()
    ip("-n", NAME, "link", "add", "lan7", "type", "veth", "peer", "name", "far")
    assert not watched.check()
    assert not watched.check()
    assert logged(caplog) == ["interface_refused"]
    delete()
    make()
    assert watched.check()
    watched.hears_itself()


@pytest.mark.root
def test_a_renamed_interface_is_used_until_another_one_has_its_name(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    ip("-n", NAME, "link", "set", "lan7", "down")
    ip("-n", NAME, "link", "set", "lan7", "name", "lan8")
    ip("-n", NAME, "link", "set", "lan8", "up")
    assert watched.check()
    assert logged(caplog) == ["interface_renamed"]
    watched.hears_itself()
    ip("-n", NAME, "link", "delete", "lan8")
    make()
    assert watched.check()
    watched.hears_itself()
    assert watched.segment.counters.reopened == 1


@pytest.mark.root
def test_groups_are_joined_again_on_an_interface_that_has_its_old_number(loop: Loop, namespace: None) -> None:
    """As it is when it leaves the namespace and comes back: the kernel has forgotten its groups."""
    with contextlib.closing(Segment(GROUP)) as segment:
        watched = Watched(loop, segment)
        number = socket.if_nametoindex("lan7")
        delete()
        assert not watched.check()
        ip("-n", NAME, "link", "add", "lan7", "index", str(number), "type", "veth", "peer", "name", "far")
        ip("-n", NAME, "address", "add", "10.79.0.1/24", "dev", "lan7")
        ip("-n", NAME, "link", "set", "lan7", "up")
        assert watched.check()
        assert "239.1.2.3" in _groups()


def _groups() -> str:
    return subprocess.run(["ip", "maddress", "show", "dev", "lan7"], check=True, capture_output=True, text=True).stdout


@pytest.mark.root
@pytest.mark.parametrize("options", [OPTIONS, GROUP], ids=["broadcast", "group"])
def test_a_passed_socket_is_bound_again_with_the_right_to_do_so(
    loop: Loop, namespace: None, options: SegmentOptions, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bccnd")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as passed:
        passed.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lan7\0")
        passed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        passed.bind(("0.0.0.0", options.port))
        # The unit alone names the interface.
        watched = Watched(loop, Segment(replace(options, interface=None), passed))
        assert watched.segment.interface == "lan7"
        for _ in range(25):  # more often than a socket may be in groups
            delete()
            make()
            with without_root(tmp_path):
                assert not watched.check()
                assert not watched.check()
            assert logged(caplog) == ["interface_refused"]
            assert watched.check()
            assert logged(caplog) == ["interface_back"]
            watched.hears_itself()


@pytest.mark.root
def test_a_socket_of_its_own_takes_no_right(watched: Watched, tmp_path: Path) -> None:
    for _ in range(2):
        delete()
        make()
        with without_root(tmp_path):
            assert watched.check()
        watched.hears_itself()


def test_a_segment_is_left_alone_while_a_backlog_is_read(loop: Loop) -> None:
    """Then the loop does not watch its socket yet, and what it holds comes in its own time."""

    class Replaced(Segment):
        def __init__(self) -> None:
            self.options, self.interface, self.up = OPTIONS, "lan7", True

        def interface_numbers(self) -> tuple[int, int]:
            return 0, 4

        def fileno(self) -> int:
            return 1000

    def drain() -> bool:
        raise AssertionError

    InterfaceWatch(loop, Replaced(), drain, lambda: None).check()
