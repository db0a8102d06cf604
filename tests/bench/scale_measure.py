"""One run of one point: a relay of its own, its clients, its load, and what that took.

Law: as in measure.py, a figure counts only if nothing was lost and nobody else had more than a little of the machine;
and what comes before the measured part is through, to the last message, when the clocks are read.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench import measure
from tests.bench.cases import Place, free_port
from tests.bench.measure import LOAD_PATIENCE, Failed, Programs, Rules, cpu_of, rss_of
from tests.bench.scale_axes import Point, Stream


@dataclass(frozen=True)
class Sample:
    """What came of one run at one point of a line."""

    axis: str
    line: str
    x: int
    round: int
    attempt: int = 1
    messages: int = 0
    #: deliveries of one message
    fan_out: float = 0.0
    #: processor time for a message, user and system: of the relay (of all listeners where there is none), of the
    #: clients, and of the sender, to whom the kernel's way to the sockets is charged on loopback
    cpu_ns: float = 0.0
    clients_ns: float = 0.0
    sender_ns: float = 0.0
    messages_per_second: float = 0.0
    #: resident, at the end; and how much of it was not there when the first message came
    rss_kib: int | None = None
    grown_kib: int | None = None
    #: datagrams that a socket held while nobody read it
    held: int | None = None
    lost: int = 0
    bad: int = 0
    foreign: float = 0.0
    refused: str = ""


def run_once(point: Point, number: int, attempt: int, programs: Path, daemon: Path, rules: Rules) -> list[Sample]:
    """One run with all that belongs to it, and the judgement of it: a figure for each line that it speaks of."""
    point = replace(point, stream=shorter(point, rules))
    lines = [point.line, *([point.first] if point.first else [])]
    found = [Sample(point.axis, line, point.x, number, attempt) for line in lines]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bccnd-scale-")))
        metrics = free_port(socket.SOCK_STREAM)
        place = Place(folder, programs, daemon, free_port(socket.SOCK_DGRAM), metrics, metrics)
        measure.wait_until_quiet(rules)
        stack.enter_context(measure.leave_alone())
        busy, own, start = measure.machine_busy(), measure.own_busy(), time.monotonic()
        try:
            found = take_burst(point, place, found[0]) if point.axis == "burst" else take(point, place, found)
        except (Failed, OSError) as error:
            return [replace(one, refused=f"failed: {error}") for one in found]
        taken = time.monotonic() - start
        foreign = max(0.0, (measure.machine_busy() - busy) - (measure.own_busy() - own)) / taken
    return [replace(one, foreign=round(foreign, 4), refused=measure.judge(one, foreign, rules)) for one in found]


def shorter(point: Point, rules: Rules) -> Stream:
    if not rules.messages or point.axis == "burst":  # which must be larger than what is held
        return point.stream
    few = max(rules.messages // point.unit, 1) * point.unit
    return replace(point.stream, messages=min(point.stream.messages, few))


def wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LOAD_PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise Failed(f"waited in vain for {what}")
        time.sleep(0.005)


def is_stopped(process: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def end(programs: Programs) -> None:
    """Also of those that stand still."""
    for process in programs.running:
        process.send_signal(signal.SIGCONT)
    programs.end()


def take(point: Point, place: Place, blank: list[Sample]) -> list[Sample]:
    """Start everything, send, wait until it has arrived, and end everything. Raises Failed."""
    case, stream = point.case, point.stream
    total = stream.warm + stream.messages
    programs = Programs(place.folder)
    warm = 0.0
    try:
        relay = None if case.alone else measure.start_relay(case, place, point.clients, programs)
        receivers = programs.start(measure.clients(case, place, point.clients, total), subprocess.PIPE)
        measure.wait_for_ready(receivers, programs)
        time.sleep(0.1)  # for the floor, which has not accepted them all yet
        before = cpu_of(relay.pid) if relay else 0
        empty = rss_of(relay.pid) if relay else 0
        sender = programs.start(load(point, place), subprocess.PIPE)
        if stream.warm:
            assert sender.stdout is not None
            if sender.stdout.readline() != "warm\n":
                raise Failed(f"what comes before does not arrive: {programs.last_words()}")
            wait_until(lambda: is_stopped(sender), "the load to pause")
            time.sleep(stream.pause)
            if relay:
                warm = (cpu_of(relay.pid) - before) / stream.warm
                before = cpu_of(relay.pid)
            sender.send_signal(signal.SIGCONT)
        sent = programs.result(sender)
        got = programs.result(receivers)
        if relay is not None and relay.poll() is not None:
            raise Failed(f"the relay ended: {programs.last_words()}")
        used = cpu_of(relay.pid) - before if relay else got["cpu_ns"]
        rss = rss_of(relay.pid) if relay else None
    finally:
        end(programs)
    whole = replace(
        blank[0],
        messages=stream.messages,
        fan_out=point.deliveries / total,
        cpu_ns=used / stream.messages,
        clients_ns=0.0 if case.alone else got["cpu_ns"] / total,
        sender_ns=sent["cpu_ns"] / stream.messages,
        messages_per_second=stream.messages / sent["seconds"] if sent["seconds"] else 0.0,
        rss_kib=rss,
        grown_kib=None if rss is None else rss - empty,
        lost=point.deliveries - got["n"],
        bad=sum(got.get(name, 0) for name in ("bad", "gap", "back", "closed")),
    )
    return [whole, *(replace(whole, line=one.line, messages=stream.warm, cpu_ns=warm) for one in blank[1:])]


def load(point: Point, place: Place) -> list[str]:
    """The command of the sender."""
    where = ["-p", str(place.udp), "-w", str(place.window)]
    return [str(place.programs / "flood"), *where, *point.stream.words()]


def counted(place: Place, name: str) -> int:
    """A metric of the daemon, over all its segments."""
    with urllib.request.urlopen(f"http://127.0.0.1:{place.metrics}/metrics", timeout=measure.PATIENCE) as page:
        text = page.read().decode()
    return sum(int(float(value)) for value in re.findall(rf"^bccnd_{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


def take_burst(point: Point, place: Place, blank: Sample) -> list[Sample]:
    """Stop the daemon, send more than its socket holds, let it go on, and ask it what it got. Raises Failed."""
    programs = Programs(place.folder)
    sent = point.stream.messages
    try:
        relay = measure.start_relay(point.case, place, 0, programs)
        relay.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_stopped(relay), "the daemon to stop")
        before = cpu_of(relay.pid)
        flood = [str(place.programs / "flood"), "-p", str(place.udp), *point.stream.words()]
        programs.result(programs.start(flood, subprocess.PIPE))
        relay.send_signal(signal.SIGCONT)
        wait_until(
            lambda: counted(place, "datagrams_received_total") + counted(place, "socket_drops_total") >= sent,
            "the daemon to count what was sent",
        )
        held, used = counted(place, "datagrams_received_total"), cpu_of(relay.pid) - before
    finally:
        end(programs)
    return [replace(blank, messages=sent, held=held, cpu_ns=used / held)]
