"""What can be known of a host, as plain values.

Law: a fact is what was seen, or None where it could not be seen; what it means is decided elsewhere. Nothing here
reaches for the world.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True)
class KeyFile:
    """A file with a key, a certificate or the like. ``trouble`` is why it could not be looked at; ``public`` that
    others may read it, but not write; ``content`` what is wrong with what it holds."""

    what: str
    path: str
    trouble: str = ""
    mode: int = 0
    uid: int = 0
    regular: bool = True
    readable: bool = True
    public: bool = False
    #: whether others could put another file in its place
    loose_folder: bool = False
    content: str = ""
    #: seconds until a certificate is over; None where there is none, or it could not be read
    expires_in: float | None = None
    begins_in: float | None = None


@dataclass(frozen=True)
class BusSocket:
    """A socket of the local bus: as configured, and as found. ``error`` is the errno's name of an attempt to connect,
    empty where it went well."""

    path: str
    wanted_mode: int | None = None
    wanted_group: str | None = None
    there: bool = True
    is_socket: bool = True
    mode: int | None = None
    group: str | None = None
    error: str = ""


@dataclass(frozen=True)
class Member:
    """Who looks, and the group of the bus: in it by the lists of users, and in it as the kernel knows this session."""

    user: str
    uid: int
    group: str | None = None
    exists: bool = True
    listed: bool = False
    in_session: bool = False
    #: whether the socket lets everybody in, or this one for another reason
    welcome: bool = False


@dataclass(frozen=True)
class DaemonAnswer:
    """What the daemon says of itself, or why it says nothing. ``error``: no_daemon, no_answer, not_admitted, ..."""

    error: str = ""
    detail: str = ""
    seconds: float = 0.0
    said: dict[str, Any] = field(default_factory=dict)
    gateways: list[dict[str, Any]] = field(default_factory=list)
    #: of the process, as far as it may be looked at: t is stopped, Z is a zombie
    state: str = ""


class Holder(NamedTuple):
    """A process that holds a port; ``pid`` 0 where it is not to be found out."""

    pid: int
    program: str
    uid: int
    drops: int = 0
    inode: int = 0


@dataclass(frozen=True)
class Interface:
    """An interface of this host; sizes in bytes. ``there`` is False for one that is only configured."""

    name: str
    there: bool = True
    up: bool = True
    running: bool = True
    broadcast: bool = True
    loopback: bool = False
    mtu: int | None = None
    addresses: tuple[str, ...] = ()
    rp_filter: int | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class SegmentFacts:
    """A segment as configured, and what was found when its socket was opened as the daemon opens it."""

    name: str
    address: str
    port: int
    interface: str | None = None
    receive_buffer: int = 0
    #: reason, finding and remedy of a StartError, where it cannot be opened
    refused: tuple[str, str, str] | None = None
    #: which way datagrams go: interface and source address
    way: tuple[str, str] | None = None
    looks: Interface | None = None
    holders: tuple[Holder, ...] | None = None
    #: what the kernel grants a socket of ours, and what the one of the daemon has
    grantable: int | None = None
    granted: int | None = None


class Filter(NamedTuple):
    """What keeps datagrams of a port out, a rule or a policy of the firewall; ``remedy`` lets them in."""

    text: str
    remedy: str


@dataclass(frozen=True)
class Firewall:
    """What of the rules was found; ``trouble`` is why some could not be read, ``remedy`` what helps."""

    trouble: str = ""
    remedy: str = ""
    drops: tuple[Filter, ...] = ()


@dataclass(frozen=True)
class Unit:
    """A unit of systemd, by the names that `systemctl show` gives its properties."""

    name: str
    properties: dict[str, str]

    def get(self, name: str) -> str:
        return self.properties.get(name, "")


@dataclass(frozen=True)
class Clock:
    """What the kernel says of its clock; seconds. ``trouble`` is why it says nothing."""

    trouble: str = ""
    synchronised: bool = True
    largest_error: float = 0.0
    #: seconds since 1970, to find a clock that was never set
    now: float = 2e9


@dataclass(frozen=True)
class Descriptors:
    """How many the daemon may have, and how many it has; None where that cannot be seen."""

    limit: int | None = None
    used: int | None = None
    clients: int = 1000
    pid: int = 0


@dataclass(frozen=True)
class Disk:
    """A folder of the recorder; bytes. ``trouble`` is why it could not be looked at."""

    what: str
    path: str
    there: bool = True
    trouble: str = ""
    free: int = 0
    total: int = 0
    needed: int = 0
    #: whether the recorder is meant to run here
    wanted: bool = False
    writable: bool | None = None


@dataclass(frozen=True)
class Metrics:
    """The metrics listener: where it is to be, whether that can be reached from elsewhere, and what it answered."""

    where: str = ""
    exposed: bool = False
    status: int = 0
    trouble: str = ""


@dataclass(frozen=True)
class Trip:
    """A message from here to here. ``seconds`` until it came over the bus; ``back`` are the segments from which its
    broadcast came back with the verdict, ``wire_seconds`` when the last of them did; ``skipped`` says why there was no
    trip."""

    skipped: str = ""
    remedy: str = ""
    failed: str = ""
    seconds: float | None = None
    segments: tuple[str, ...] = ()
    back: tuple[tuple[str, str], ...] = ()
    wire_seconds: float | None = None
    #: whether it was seen on the tap, by the counters only, or without a daemon
    seen_by: str = "tap"
