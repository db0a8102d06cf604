"""What grows, along which axis, and with what load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tools.bench.cases import BROADCAST, CHANNELS, PATTERNS, Case, Place, Start, bccnd, floor, patterns
from tools.bench.points import Axis, Line, Point, Stream

#: messages in a row on one channel, where channels repeat
RUN: Final = 16
#: channels that the daemon remembers, at most, in both generations (bccnd/core/matching/routes.py, CACHE)
REMEMBERED: Final = 8192
#: seconds after which a source that is heard gets another place in line (tracking/dedup.py, RANK_SECONDS), and a bit
RANK: Final = 1.2
#: bytes of a datagram of flood beside its payload, about: envelope with HMAC, sender, number and channel
AROUND: Final = 60
#: messages under way where they are large: all of them must fit in one packet of a batch
SMALL_WINDOW: Final = 40
#: one message in so many goes to somebody, where the cost of those for nobody is measured
ONE_IN: Final = 64
#: clients where patterns and channels grow
MANY: Final = 64
#: settings of a daemon that is to remember a million sources
ROOMY: Final = {"dedup": {"max_sources": 1_100_000}}
#: datagrams of a burst, more than a default receive buffer holds
BURST: Final = 200_000

CLIENTS: Final = (1, 2, 8, 64, 128, 256, 512)


def of_several(line: str) -> tuple[str, int]:
    """The ordinary load to the same clients."""
    return f"{line.partition('_')[0]}_alternating", CHANNELS


def xs(all_of_them: Sequence[int], quick: bool) -> Sequence[int]:
    """With ``quick`` only the first two, which is enough to see that everything works."""
    return all_of_them[:2] if quick else all_of_them


def relay(name: str, start: Start, *wishes: str, **more: bool) -> Case:
    """A case of its own, with what its clients are told beside where and how many."""
    protocol = "seq" if name.startswith("bccnd") else "floor"
    # They wait longer than the pause between what comes before and what is measured.
    return Case(name, name, protocol, start, clients=("-i", "5000", *wishes), **more)  # type: ignore[arg-type]


def saturated(start: Start) -> Start:
    """A relay that no wake-up puts before the sender (SCHED_BATCH). What has little to do with a message would else be
    woken for every few of them, and its figure would be that of waking up; under full load it finds many at a time."""

    def begin(place: Place, fan_out: int) -> list[str]:
        return ["chrt", "--batch", "0", *start(place, fan_out)]

    return begin


OURS: Final = saturated(bccnd(signed=True))
AS_IT_COMES: Final = bccnd(signed=True)
ALL: Final = ("-s", "bench/")
FLOOR: Final = relay("floor", saturated(floor("hmac", "each")))
FLOOR_BATCH: Final = relay("floor_batch", saturated(floor("hmac", "batch")), batches=True)
BCCND: Final = relay("bccnd", OURS, *ALL)
BCCND_BATCH: Final = relay("bccnd_batch", OURS, "-M", *ALL, batches=True)
#: beside the one who reads everything, everybody has so many patterns that match nothing
BCCND_PATTERN: Final = relay("bccnd_pattern", OURS, *patterns(PATTERNS), one_reader=True)
NOBODY: Final = relay("bccnd_nobody", OURS, "-g", str(ONE_IN), "-s", "bench/c0000000")
MODES: Final = (FLOOR, BCCND, FLOOR_BATCH, BCCND_BATCH)
MODE_LINES: Final = (
    Line("floor", "floor, HMAC"),
    Line("bccnd", "bccnd", "floor"),
    Line("floor_batch", "floor, HMAC, packet per batch"),
    Line("bccnd_batch", "bccnd, batch mode", "floor_batch"),
)


def at(axis: str, x: int, case: Case, clients: int, stream: Stream, line: str = "") -> Point:
    return Point(axis, line or case.name, x, case, clients, stream)


def clients(quick: bool) -> list[Point]:
    nobody = Stream(120_000 - 120_000 % ONE_IN, channels=ONE_IN)
    points = [Point("clients", "bccnd", 0, NOBODY, 1, nobody, every=ONE_IN)]
    for n in xs(CLIENTS, quick):
        points += [at("clients", n, case, n, Stream(case.messages(n))) for case in MODES]
    return points


def share(name: str, start: Start, n: int, processes: int) -> tuple[Case, Stream]:
    """Each of n clients gets its own part of the messages."""
    channels = n * -(-CHANNELS // n)
    case = relay(name, start, "-e", str(channels), "-p", str(processes), one_reader=True)
    return case, Stream(80_000 - 80_000 % n, channels=channels)


def shares(quick: bool) -> list[Point]:
    points = []
    for n in xs(CLIENTS, quick):
        for name, start in (("floor", saturated(floor("hmac", "each", "-s"))), ("bccnd", OURS)):
            # One process with all clients: what differs from one client to many is then the relay's part alone. With a
            # process each, the kernel's part in waking them comes on top.
            for line, processes in ((name, 1), (f"{name}_each", n)):
                case, stream = share(name, start, n, processes)
                points.append(at("shares", n, case, n, stream, line))
    return points


def pattern_counts(quick: bool) -> list[Point]:
    points = []
    for n in xs((1, 10, 50, 100, 1000), quick):
        case = relay("bccnd", OURS, *patterns(n), one_reader=True)
        points.append(at("patterns", n, case, MANY, Stream(case.messages(MANY))))
    return points


def sources(quick: bool) -> list[Point]:
    case = relay("bccnd", saturated(bccnd(signed=True, more=ROOMY)), *ALL)
    points = []
    for n in xs((1, 100, 10_000, 100_000, 1_000_000), quick):
        messages = n * -(-case.messages(1) // n)
        stream = Stream(messages, warm=n, sources=n, long_names=True, pause=RANK)
        points.append(Point("sources", "bccnd", n, case, 1, stream, "first" if n >= 10_000 else ""))
    return points


def channels(quick: bool) -> list[Point]:
    points = []
    kinds = (("one", BCCND, 1, 120_000), ("patterns", BCCND_PATTERN, MANY, 120_000), ("all", BCCND, MANY, 24_000))
    for kind, case, n, messages in kinds:
        for count in xs((1, 16, 1000, 4000, 10_000, 100_000, 1_000_000), quick):
            # Before: every channel once, or as many as are remembered.
            warm = max(64, min(count, 2 * REMEMBERED))
            many = max(messages, count if count <= 100_000 and n == 1 else 0)
            repeated = Stream(many, warm=RUN * min(warm, REMEMBERED // 2), channels=count, run=RUN)
            by_turns = Stream(many, warm=warm, channels=count)
            points.append(at("channels", count, case, n, repeated, f"{kind}_repeated"))
            # With a million of them none comes twice.
            line = "unique" if count > many else "alternating"
            points.append(at("channels", count, case, n, by_turns, f"{kind}_{line}"))
    return points


def payload(quick: bool) -> list[Point]:
    points = []
    for n in xs((64, 128, 256, 512, 1024, 1400), quick):
        for case in MODES:
            stream = Stream(case.messages(8), size=n + AROUND, window=SMALL_WINDOW)
            points.append(at("payload", n, case, 8, stream))
    return points


#: who listens for himself needs no daemon: what all of them take together, against daemon and clients together
LISTENERS: Final = Case("listeners", "listeners", "listeners", clients=())


def direct(quick: bool) -> list[Point]:
    points = []
    for n in xs((1, 2, 8, 64), quick):
        for line, case in (
            ("listeners", LISTENERS),
            ("bccnd_all", relay("bccnd_all", AS_IT_COMES, "-p", str(n), *ALL)),
            ("batch_all", relay("bccnd_batch_all", AS_IT_COMES, "-p", str(n), "-M", *ALL, batches=True)),
        ):
            points.append(at("direct", n, case, n, Stream(case.messages(n), address=BROADCAST), line))
        own, stream = share("bccnd_own", AS_IT_COMES, n, n)
        points.append(at("direct", n, own, n, replace(stream, address=BROADCAST), "bccnd_own"))
    return points


def burst(quick: bool) -> list[Point]:
    return [
        Point("burst", "bccnd", size, relay("bccnd", AS_IT_COMES), 0, Stream(BURST, size=size))
        for size in xs((150, 500, 1000, 1400), quick)
    ]


def channel_lines() -> Iterable[Line]:
    kinds = {
        "one": "1 client",
        "patterns": f"64 clients with {PATTERNS} patterns each, one gets all",
        "all": "64 clients get all",
    }
    streams = {"repeated": f"runs of {RUN}", "alternating": "by turns", "unique": "each a new one"}
    for kind, who in kinds.items():
        for stream, what in streams.items():
            yield Line(f"{kind}_{stream}", f"{who}; {what}")


GROWTH: Final = {
    axis.name: axis
    for axis in (
        Axis("clients", "Clients that want everything", "clients", MODE_LINES, clients),
        Axis(
            *("shares", "Clients that want their own share only", "clients"),
            (
                Line("floor", "floor, HMAC; one process has all clients"),
                Line("bccnd", "bccnd; one process has all clients", "floor"),
                Line("floor_each", "floor, HMAC; a process each"),
                Line("bccnd_each", "bccnd; a process each", "floor_each"),
            ),
            shares,
        ),
        Axis(
            *("patterns", "Patterns of each of 64 clients, one of which gets everything", "patterns per client"),
            (Line("bccnd", "bccnd"),),
            pattern_counts,
        ),
        Axis(
            *("sources", "Sources", "sources"),
            (Line("first", "heard for the first time"), Line("bccnd", "heard again")),
            sources,
        ),
        Axis("channels", "Channels", "distinct channels", tuple(channel_lines()), channels, of_several),
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
        ),
        Axis("burst", "A burst while the daemon stands still", "bytes of a datagram", (Line("bccnd", "bccnd"),), burst),
    )
}
