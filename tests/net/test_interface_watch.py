"""Interfaces that are deleted, made anew or renamed: decisions, log, and real sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

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


NAME: Final = f"bciw{os.getpid() % 100_000}"
OPTIONS: Final = SegmentOptions("lan", "10.79.0.255", 5400, bind="0.0.0.0", interface="lan7", receive_buffer=4096)
GROUP: Final = replace(OPTIONS, address="239.1.2.3", bind=None)


#: of the first interface
NUMBER: Final = "4711"


def link(*words: str) -> None:
    ip("-n", NAME, "link", *words)


def make_bare(*options: str) -> None:
    """Make the interface, with its other end, without an address."""
    link("add", "lan7", *options, "type", "veth", "peer", "name", "far")


def make(*options: str) -> None:
    make_bare(*options)
    ip("-n", NAME, "address", "add", "10.79.0.1/24", "brd", "+", "dev", "lan7")
    for end in ("far", "lan7"):
        link("set", end, "up")


def delete() -> None:
    link("delete", "lan7")


def rename() -> None:
    link("set", "lan7", "down")
    link("set", "lan7", "name", "lan8")
    link("set", "lan8", "up")


@pytest.fixture
def namespace() -> Iterator[None]:
    """A network namespace with the interface, in which the test runs."""
    try:
        ip("netns", "add", NAME)
    except (OSError, subprocess.CalledProcessError):
        cannot_here("cannot make network namespaces (it takes root and iproute2)")
    try:
        make("index", NUMBER)
        with inside(NAME):
            yield
    finally:
        subprocess.run(["ip", "netns", "delete", NAME], check=False, capture_output=True)


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


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The events since the last call."""
    events = [str(getattr(record, "event", "")) for record in caplog.records]
    caplog.clear()
    return [name for name in events if name.startswith("interface_")]


#: what happens to the interface, whether it is used then, and what is logged
Step = tuple[Sequence[Callable[[], None]], bool, list[str]]
HISTORIES: Final[dict[str, list[Step]]] = {
    "made anew": [((delete,), False, ["interface_gone"]), ((make,), True, ["interface_back"])],
    # As it is when it leaves the namespace and comes back: the kernel has forgotten its groups.
    "a group, under the old number": [
        ((delete,), False, ["interface_gone"]),
        ((lambda: make("index", NUMBER),), True, ["interface_back"]),
    ],
    "made anew between two looks": [((delete, make), True, ["interface_back"])],
    "not usable yet": [
        ((delete, make_bare), False, ["interface_refused"]),
        ((), False, []),
        ((delete, make), True, ["interface_back"]),
    ],
    "renamed, then replaced": [
        ((rename,), True, ["interface_renamed"]),
        ((lambda: link("delete", "lan8"), make), True, ["interface_back"]),
    ],
}


@pytest.mark.root
@pytest.mark.parametrize("history", HISTORIES)
def test_a_segment_follows_its_interface_without_any_right(
    loop: Loop, namespace: None, history: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with contextlib.closing(Segment(GROUP if "number" in history else OPTIONS)) as segment:
        watched = Watched(loop, segment)
        descriptor = segment.fileno()
        for changes, used, events in HISTORIES[history]:
            for change in changes:
                change()
            with without_root(tmp_path):
                assert watched.check() is used
            assert logged(caplog) == events
            if used:
                watched.hears_itself()
        assert (segment.fileno(), segment.counters.reopened) == (descriptor, 1)


@pytest.mark.root
def test_what_waits_is_read_and_drops_stay_counted(loop: Loop, namespace: None) -> None:
    with contextlib.closing(Segment(OPTIONS)) as segment:
        watched = Watched(loop, segment)
        for _ in range(50):
            segment.sender.send(b"x" * 1000)
        drops = segment.kernel_drops()
        assert drops > 0
        delete()
        assert not watched.check()
        assert segment.sender.send(b"lost") == "ENODEV"
        make()
        assert watched.check()
        assert watched.received == [b"x" * 1000] * (50 - drops)
        assert segment.kernel_drops() == drops


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
            assert logged(caplog) == ["interface_refused"]
            assert watched.check()
            assert logged(caplog) == ["interface_back"]
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
