"""One run of one point, and what it took."""

from __future__ import annotations

import signal
import subprocess
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support import metric
from tools.bench import measure
from tools.bench.cases import Place
from tools.bench.measure import LOAD_PATIENCE, PATIENCE, Programs, Result, Rules
from tools.bench.procs import cpu_of
from tools.bench.scale_axes import Point, Stream


@dataclass(frozen=True)
class Sample(Result):
    """What came of one run at one point of a line."""

    axis: str
    line: str
    x: int
    round: int
    attempt: int = 1
    #: deliveries of one message
    fan_out: float = 0.0
    #: datagrams that a socket held while nobody read it
    held: int | None = None


def run_once(point: Point, number: int, attempt: int, programs: Path, daemon: Path, rules: Rules) -> list[Sample]:
    """One run of a point: a figure for each line that it is about."""
    point = replace(point, stream=shorter(point, rules))
    lines = [point.line, *([point.first] if point.first else [])]
    blank = [Sample(point.axis, line, point.x, number, attempt) for line in lines]

    def go(place: Place, blank: list[Sample]) -> list[Sample]:
        return take_burst(point, place, blank[0]) if point.axis == "burst" else take(point, place, blank)

    return measure.attempt(go, blank, programs, daemon, rules, 0.0)


def shorter(point: Point, rules: Rules) -> Stream:
    if not rules.messages or point.axis == "burst":  # which must be larger than what is held
        return point.stream
    few = max(rules.messages // point.unit, 1) * point.unit
    return replace(point.stream, messages=min(point.stream.messages, few))


def load(point: Point, place: Place) -> list[str]:
    """The command of the sender."""
    return [str(place.programs / "flood"), "-p", str(place.udp), *point.stream.words()]


def take(point: Point, place: Place, blank: list[Sample]) -> list[Sample]:
    """Send to a relay with all its clients. Raises Failed."""
    stream = point.stream
    total = stream.warm + stream.messages
    command = [*load(point, place), "-w", str(place.window)]
    taken = measure.take(point.case, place, point.clients, total, command, warm=stream.warm, pause=stream.pause)
    seconds = taken.sent["seconds"]
    whole = replace(
        taken.result(blank[0], point.case, stream.messages, total, point.deliveries),
        fan_out=point.deliveries / total,
        messages_per_second=stream.messages / seconds if seconds else 0.0,
    )
    return [whole, *(replace(whole, line=one.line, messages=stream.warm, cpu_ns=taken.warm) for one in blank[1:])]


def counted(place: Place, name: str) -> int:
    """A metric of the daemon, over all its segments."""
    with urllib.request.urlopen(f"http://127.0.0.1:{place.metrics}/metrics", timeout=PATIENCE) as page:
        return int(metric(page.read().decode(), name))


def take_burst(point: Point, place: Place, blank: Sample) -> list[Sample]:
    """Stop the daemon, send more than its socket holds, let it go on, and ask it what it got. Raises Failed."""
    programs = Programs(place.folder)
    sent = point.stream.messages
    try:
        relay = measure.start_relay(point.case, place, 0, programs)
        relay.send_signal(signal.SIGSTOP)
        measure.wait_for(lambda: measure.is_stopped(relay), relay, programs)
        before = cpu_of(relay.pid)
        programs.result(programs.start(load(point, place), subprocess.PIPE))
        relay.send_signal(signal.SIGCONT)
        measure.wait_for(
            lambda: counted(place, "datagrams_received_total") + counted(place, "socket_drops_total") >= sent,
            *(relay, programs, LOAD_PATIENCE),
        )
        held, used = counted(place, "datagrams_received_total"), cpu_of(relay.pid) - before
    finally:
        programs.end()
    return [replace(blank, messages=sent, held=held, cpu_ns=used / held)]
