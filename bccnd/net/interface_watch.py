"""Watches the interface of a segment, and opens the segment again after the interface was deleted and made anew.

The kernel binds a socket to the number of an interface, not to its name, and reports nothing on a socket that only
receives. Invariant: the kernel is asked through the segment's own socket, so neither netlink nor the socket's network
namespace is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol, TypeVar

from bccnd import log
from bccnd.errors import StartError
from bccnd.net.loop import Loop
from bccnd.net.segment import Segment

#: seconds between two looks at an interface
INTERVAL: Final = 1.0


class Reader(Protocol):
    """Reads a segment."""

    def read_available(self) -> bool:
        """Process some datagrams in the socket; return whether there may be more."""


ReaderT = TypeVar("ReaderT", bound=Reader)


def watch_interfaces(
    loop: Loop, segments: Iterable[Segment], readers: Iterable[ReaderT], watch: Callable[[ReaderT], None]
) -> None:
    """Watch the interfaces of segments; ``watch`` has the loop watch a segment's reader."""
    for segment, reader in zip(segments, readers, strict=True):
        if segment.interface:
            loop.every(INTERVAL, InterfaceWatch(loop, segment, reader.read_available, partial(watch, reader)).check)


class Interface(Enum):
    """The state of the interface that a socket is bound to."""

    PRESENT = auto()
    RENAMED = auto()
    GONE = auto()
    #: another interface has the name, or the same one was away: multicast groups were left
    REPLACED = auto()


def judge(bound: int, named: int, *, up: bool) -> Interface:
    """Compare the number of the interface that a socket is ``bound`` to with that of the ``named`` one (0: none).

    ``up`` is whether it was there the last time.
    """
    if named:
        return Interface.PRESENT if up and named == bound else Interface.REPLACED
    return Interface.RENAMED if up and bound else Interface.GONE


class InterfaceWatch:
    """Watches the interface of ``segment``; ``read_available`` reads the segment, ``watch`` has the loop watch it."""

    def __init__(
        self, loop: Loop, segment: Segment, read_available: Callable[[], bool], watch: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._segment = segment
        self._read_available = read_available
        self._watch = watch
        #: the last state that was logged, if it still holds
        self._logged = ""

    def check(self) -> None:
        """Look at the interface; to be called every second."""
        segment = self._segment
        name, interface = segment.options.name, segment.interface
        found = judge(*segment.interface_numbers(), up=segment.up)
        if found is Interface.REPLACED:
            self._reopen()
        elif found is Interface.GONE:
            segment.up = False
            if self._is_new("gone"):
                log.event(
                    "interface_gone",
                    f"segment {name}: interface {interface} no longer exists: nothing is received or sent there",
                    remedy="find out why it was removed (ip link, journalctl -k); the daemon uses it when it is back",
                    segment=name,
                    interface=interface,
                )
        elif found is Interface.RENAMED:
            if self._is_new("renamed"):
                log.event(
                    "interface_renamed",
                    f"segment {name}: interface {interface} has another name now: the segment continues there until "
                    "the next start",
                    remedy="set 'interface' of this segment to the new name (ip link), or restore the old name",
                    segment=name,
                    interface=interface,
                )
        else:
            self._logged = ""

    def _reopen(self) -> None:
        segment = self._segment
        name, interface = segment.options.name, segment.interface
        if not self._loop.watches(segment.fileno()) or self._read_available():
            return  # datagrams in the old socket come first
        self._loop.unwatch(segment.fileno())
        try:
            segment.reopen()
        except (StartError, OSError) as error:
            segment.up = False
            cause = error.detail if isinstance(error, StartError) else str(error.strerror)
            remedy = error.remedy if isinstance(error, StartError) else "check that it exists and is up (ip link)"
            if segment.passed:
                remedy = (
                    "let systemd open the socket again: systemctl stop 'bccnd*'; systemctl start bccnd. With "
                    "AmbientCapabilities=CAP_NET_RAW and CapabilityBoundingSet=CAP_NET_RAW the daemon can do it itself"
                )
            if self._is_new(cause):
                log.event(
                    "interface_refused",
                    f"segment {name}: interface {interface} was recreated, but its socket cannot use it yet: {cause}",
                    remedy=remedy,
                    segment=name,
                    interface=interface,
                )
        else:
            self._logged = ""
            text = f"segment {name}: interface {interface} was recreated: the segment continues there"
            log.event("interface_back", text, segment=name, interface=interface)
        finally:
            self._watch()

    def _is_new(self, state: str) -> bool:
        """Whether a state was not logged yet."""
        before, self._logged = self._logged, state
        return state != before
