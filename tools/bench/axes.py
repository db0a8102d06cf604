"""What is measured: the fan-out of each relay, and what grows, along which axis, and with what load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from tools.bench.measure import PACE, Figures, Load, measure, measure_burst, measure_idle
from tools.bench.relays import BROADCAST, CHANNELS, LISTENERS, RELAYS, Place, Relay, Start, bccnd, floor

#: messages in a row on one channel, where channels repeat
RUN: Final = 16
#: channels that the daemon remembers, at most, in both generations (bccnd/core/matching/routes.py, CACHE)
REMEMBERED: Final = 8192
#: seconds after which a source that is heard gets another place in line (tracking/dedup.py, RANK_SECONDS), and a bit
RANK: Final = 1.2
#: bytes of a datagram beside its payload, about: envelope with HMAC, sender, number and channel
AROUND: Final = 60
#: messages under way where they are large: all of them must fit in one packet of a batch
SMALL_WINDOW: Final = 40
#: one message in so many has a subscriber, where the cost of those without one is measured
ONE_IN: Final = 64
#: clients where patterns and channels grow, and the patterns of each of them
MANY, PATTERNS = 64, 50
#: settings of a daemon that is to remember a million sources
ROOMY: Final = {"dedup": {"max_sources": 1_100_000}}
#: datagrams of a burst, more than a default receive buffer holds
BURST: Final = 200_000

FAN_OUTS: Final = (1, 8, 64)
CLIENTS: Final = (1, 2, 8, 64, 128, 256, 512)
#: the clients wait longer than the pause between what is sent before and what is measured
ALL: Final = ("-s", "bench/")


class Line(NamedTuple):
    """What is compared along an axis; ``floor`` names the line that it is held against, x by x."""

    name: str
    title: str
    floor: str = ""


class Shown(NamedTuple):
    """A figure of the printed tables."""

    name: str
    title: str
    form: str = ",.0f"


CPU: Final = Shown("cpu_ns", "ns of the relay for a message")
MEMORY: Final = Shown("resident_mb", "resident memory, MB")


@dataclass(frozen=True)
class Point:
    """One run's worth; `measure` returns the figures of its line, and of `first` where that has one. Raises Failed."""

    axis: str
    line: str
    x: int
    measure: Callable[[Place], Figures]
    #: the line for the cost of what is sent before
    first: str = ""


@dataclass(frozen=True)
class Axis:
    """One thing that grows."""

    name: str
    title: str
    #: what x counts
    x: str
    lines: tuple[Line, ...]
    points: Callable[[], Iterator[Point]]
    shown: tuple[Shown, ...] = (CPU, MEMORY)
    #: of each x, if x is no number
    labels: Mapping[int, str] | None = None


def at(axis: str, line: str, x: int, load: Load, first: str = "") -> Point:
    return Point(axis, line, x, partial(measure, load), first)


def fan_outs(mode: str) -> Iterator[Point]:
    rate = PACE if mode == "paced" else 0
    for clients in FAN_OUTS:
        for relay in RELAYS.values():
            if not relay.package or relay.program:
                messages = 4000 - 4000 % clients if rate else relay.messages(clients)
                yield at(mode, relay.name, clients, Load(relay, clients, messages, rate=rate))


def relay_of(name: str, start: Start, *options: str, one_reader: bool = False) -> Relay:
    protocol = "seq" if name.startswith("bccnd") else "floor"
    return Relay(name, name, protocol, start, "", True, options, one_reader, "-M" in options or "batch" in name)


def saturated(start: Start) -> Start:
    """A relay that no wake-up puts before the sender (SCHED_BATCH). What has little to do with a message would else be
    woken for every few of them, and its figure would be that of waking up; under full load it finds many at a time."""

    def begin(place: Place, fan_out: int) -> list[str]:
        return ["chrt", "--batch", "0", *start(place, fan_out)]

    return begin


OURS: Final = saturated(bccnd())
BCCND: Final = relay_of("bccnd", OURS, *ALL)
MODES: Final = (
    relay_of("floor", saturated(floor())),
    BCCND,
    relay_of("floor_batch", saturated(floor("-b"))),
    relay_of("bccnd_batch", OURS, "-M", *ALL),
)
MODE_LINES: Final = (
    Line("floor", "floor"),
    Line("bccnd", "bccnd", "floor"),
    Line("floor_batch", "floor, packet per batch"),
    Line("bccnd_batch", "bccnd, batch mode", "floor_batch"),
)


def patterns_of(count: int) -> Relay:
    """Return the daemon with clients of so many patterns, of which all match nothing but one of one client."""
    return relay_of("bccnd", OURS, "-x", str(count), "-o", "bench/", one_reader=True)


def clients() -> Iterator[Point]:
    unwanted = relay_of("bccnd", OURS, "-g", str(ONE_IN), "-s", "bench/c0000000")
    messages = 120_000 - 120_000 % ONE_IN
    yield at("clients", "bccnd", 0, Load(unwanted, 1, messages, channels=ONE_IN, every=ONE_IN))
    for n in CLIENTS:
        for relay in MODES:
            yield at("clients", relay.name, n, Load(relay, n, relay.messages(n)))


def share(name: str, start: Start, n: int, processes: int, address: str = "127.0.0.1") -> Load:
    """Return the load of which each of n clients gets its own part."""
    channels = n * -(-CHANNELS // n)
    relay = relay_of(name, start, "-e", str(channels), "-p", str(processes), one_reader=True)
    return Load(relay, n, 80_000 - 80_000 % n, channels=channels, address=address)


def shares() -> Iterator[Point]:
    for n in CLIENTS:
        for name, start in (("floor", saturated(floor("-s"))), ("bccnd", OURS)):
            # One process with all clients: what differs from one client to many is then the relay's part alone. With a
            # process each, the kernel's part in waking them comes on top.
            for line, processes in ((name, 1), (f"{name}_each", n)):
                yield at("shares", line, n, share(name, start, n, processes))


def pattern_counts() -> Iterator[Point]:
    for n in (1, 10, 50, 100, 1000):
        yield at("patterns", "bccnd", n, Load(patterns_of(n), MANY, patterns_of(n).messages(MANY)))


def sources() -> Iterator[Point]:
    relay = relay_of("bccnd", saturated(bccnd(ROOMY)), *ALL)
    for n in (1, 100, 10_000, 100_000, 1_000_000):
        messages = n * -(-relay.messages(1) // n)
        load = Load(relay, 1, messages, warm=n, sources=n, long_names=True, pause=RANK)
        yield at("sources", "bccnd", n, load, "first" if n >= 10_000 else "")


#: line, title, relay, clients and messages
CHANNEL_KINDS: Final = (
    ("one", "1 client", BCCND, 1, 120_000),
    ("patterns", f"64 clients with {PATTERNS} patterns each, one gets all", patterns_of(PATTERNS), MANY, 120_000),
    ("all", "64 clients get all", BCCND, MANY, 24_000),
)
STREAMS: Final = {"repeated": f"runs of {RUN}", "alternating": "by turns", "unique": "each a new one"}


def channels() -> Iterator[Point]:
    for kind, _, relay, n, messages in CHANNEL_KINDS:
        for count in (1, 16, 1000, 4000, 10_000, 100_000, 1_000_000):
            # Before: every channel once, or as many as are remembered.
            warm = max(64, min(count, 2 * REMEMBERED))
            many = max(messages, count if count <= 100_000 and n == 1 else 0)
            repeated = Load(relay, n, many, RUN * min(warm, REMEMBERED // 2), channels=count, run=RUN)
            yield at("channels", f"{kind}_repeated", count, repeated)
            # With a million of them none comes twice.
            line = "unique" if count > many else "alternating"
            yield at("channels", f"{kind}_{line}", count, Load(relay, n, many, warm, channels=count))


def payload() -> Iterator[Point]:
    for n in (64, 128, 256, 512, 1024, 1400):
        for relay in MODES:
            load = Load(relay, 8, relay.messages(8), size=n + AROUND, window=SMALL_WINDOW)
            yield at("payload", relay.name, n, load)


def direct() -> Iterator[Point]:
    """Programs that listen for themselves need no daemon: all of them together, against daemon and clients."""
    for n in (1, 2, 8, 64):
        for line, relay in (
            ("listeners", LISTENERS),
            ("bccnd_all", relay_of("bccnd", bccnd(), "-p", str(n), *ALL)),
            ("batch_all", relay_of("bccnd", bccnd(), "-p", str(n), "-M", *ALL)),
        ):
            yield at("direct", line, n, Load(relay, n, relay.messages(n), address=BROADCAST))
        yield at("direct", "bccnd_own", n, share("bccnd", bccnd(), n, n, BROADCAST))


def burst() -> Iterator[Point]:
    for size in (150, 500, 1000, 1400):
        load = Load(relay_of("bccnd", bccnd()), 0, BURST, size=size)
        yield Point("burst", "bccnd", size, partial(measure_burst, load))


def idle() -> Iterator[Point]:
    for sources in (0, 100_000):
        yield Point("idle", "bccnd", sources, partial(measure_idle, sources))


BCCND_LINE: Final = (Line("bccnd", "bccnd"),)
IDLE: Final = Axis(
    "idle", "Without traffic", "sources", BCCND_LINE, idle, (Shown("core", "share of a core", ".2%"), MEMORY)
)
RELAY_LINES: Final = tuple(Line(one.name, one.title, one.floor) for one in RELAYS.values())
FAN_OUT: Final = {
    "saturated": Axis("saturated", "as fast as it goes", "fan-out", RELAY_LINES, partial(fan_outs, "saturated")),
    "paced": Axis(
        *("paced", f"{PACE:,} messages a second", "fan-out", RELAY_LINES, partial(fan_outs, "paced")),
        (CPU, Shown("p50_us", "median latency, us")),
    ),
}
GROWTH: Final = {
    axis.name: axis
    for axis in (
        Axis("clients", "Clients that want everything", "clients", MODE_LINES, clients),
        Axis(
            *("shares", "Clients that want their own share only", "clients"),
            (
                Line("floor", "floor; one process has all clients"),
                Line("bccnd", "bccnd; one process has all clients", "floor"),
                Line("floor_each", "floor; a process each"),
                Line("bccnd_each", "bccnd; a process each", "floor_each"),
            ),
            shares,
        ),
        Axis(
            *("patterns", "Patterns of each of 64 clients, one of which gets everything", "patterns per client"),
            *(BCCND_LINE, pattern_counts),
        ),
        Axis(
            *("sources", "Sources", "sources"),
            (Line("first", "heard for the first time"), Line("bccnd", "heard again")),
            sources,
            (CPU, MEMORY, Shown("source_bytes", "bytes of a source")),
        ),
        Axis(
            *("channels", "Channels", "distinct channels"),
            tuple(
                Line(f"{kind}_{stream}", f"{title}; {how}")
                for kind, title, *_ in CHANNEL_KINDS
                for stream, how in STREAMS.items()
            ),
            channels,
        ),
        Axis("payload", "Bytes of payload, to 8 clients", "bytes of payload", MODE_LINES, payload),
        Axis(
            *("direct", "With a daemon and without", "programs"),
            (
                Line("listeners", "no daemon, each hears everything"),
                Line("bccnd_all", "bccnd, each gets everything"),
                Line("batch_all", "bccnd, batch mode, each gets everything"),
                Line("bccnd_own", "bccnd, each gets its own share"),
            ),
            direct,
            (CPU, Shown("all_ns", "ns of daemon and all programs")),
        ),
        Axis(
            *("burst", "A burst while the daemon stands still", "bytes of a datagram", BCCND_LINE, burst),
            (CPU, Shown("held", "datagrams held")),
        ),
    )
}


def select(axis: Axis, only: Sequence[str], xs: Sequence[int], *, quick: bool) -> list[Point]:
    """Return the points of some lines, labels and x; with ``quick`` only of the first two x of each line."""
    labels = axis.labels or {}
    chosen: list[Point] = []
    of_line: Counter[str] = Counter()
    for point in sorted(axis.points(), key=lambda point: point.x) if quick else axis.points():
        known = not only or point.line in only or any(labels.get(point.x, "").startswith(word) for word in only)
        if known and (not xs or point.x in xs):
            of_line[point.line] += 1
            if not quick or labels or of_line[point.line] <= 2:
                chosen.append(point)
    return chosen
