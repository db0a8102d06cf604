"""One run of one case: a relay of its own, its clients, its load, and what that took."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from tests.support import free_port, metric
from tools.bench.cases import Case, Place
from tools.bench.points import PACE, Point, Stream
from tools.bench.procs import cpu_of, kib_of

#: seconds; generous, because it only matters when something is broken
PATIENCE: Final = 20.0
#: a load that has not ended by then never will
LOAD_PATIENCE: Final = 120.0
#: Relay, publisher and clients share one processor: then no figure depends on where the scheduler puts whom, and no
#: wake-up has to go to another processor, which in a virtual machine costs an exit to the hypervisor, at times as much
#: as the work itself. So the processor time of a message repeats to a few per cent. We ourselves stay on the others.
PROCESSOR: Final = 1 if 1 in os.sched_getaffinity(0) else min(os.sched_getaffinity(0))


class Failed(Exception):
    """A run did not come to an end; the text says why."""


@dataclass(frozen=True)
class Rules:
    """When a run counts, and how often it is tried."""

    #: share of one processor that others may have meanwhile
    foreign: float = 0.05
    tries: int = 6
    #: messages of a run at most
    messages: int | None = None


@dataclass(frozen=True)
class Sample:
    """What came of one run at one point of a line."""

    axis: str
    line: str
    x: int
    round: int
    #: 1 for the first
    attempt: int = 1
    messages: int = 0
    #: deliveries of one message
    fan_out: float = 0.0
    #: processor time for a message, user and system: of the relay (of all listeners where there is none), of all
    #: clients together (nothing where there is no relay), and of the sender, to whom the kernel's way to the sockets is
    #: charged on loopback
    cpu_ns: float = 0.0
    clients_ns: float = 0.0
    sender_ns: float = 0.0
    messages_per_second: float = 0.0
    p50_us: float | None = None
    p99_us: float | None = None
    lost: int = 0
    #: twice, out of order, unreadable, or behind a gap
    bad: int = 0
    #: share of a processor that others had
    foreign: float = 0.0
    #: resident, at the end; and how much of it was not there when the first message came
    rss_kib: int | None = None
    grown_kib: int | None = None
    #: datagrams that a socket held while nobody read it
    held: int | None = None
    #: why it does not count; empty if it does
    refused: str = ""


def machine_busy() -> float:
    """Seconds that all processors have been at work, for whomever; what the hypervisor took counts as well."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _wait, irq, soft, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def own_busy() -> float:
    """Seconds of that which were ours: this process and the children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def wait_until_quiet(rules: Rules) -> None:
    """Until others leave the machine alone, but not for ever: a run that they disturb is repeated anyway."""
    if rules.foreign >= (os.cpu_count() or 1):
        return  # whatever they do is allowed
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        before, start = machine_busy(), time.monotonic()
        time.sleep(0.4)
        if machine_busy() - before <= rules.foreign * (time.monotonic() - start) + 0.001:
            return


@contextmanager
def leave_alone() -> Iterator[None]:
    """Keep this process off the processor that is measured, if there is another one."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, (before - {PROCESSOR}) or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass
class Programs:
    """The programs of one run; none of them outlives it."""

    folder: Path
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, command: Sequence[str], output: int | IO[str], **environment: str) -> subprocess.Popen[str]:
        with (self.folder / "errors").open("a") as errors:
            process = subprocess.Popen(
                ["taskset", "-c", str(PROCESSOR), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=self.folder,
                env={**os.environ, **environment},
                text=True,
            )
        self.running.append(process)
        return process

    def output(self) -> str:
        return "".join(path.read_text() for path in map(self.folder.joinpath, ("output", "errors")) if path.exists())

    def last_words(self) -> str:
        lines = self.output().strip().splitlines()
        return lines[-1] if lines else "without a word"

    def result(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """What a load program reports at its end. Raises Failed."""
        try:
            output, _ = process.communicate(timeout=LOAD_PATIENCE)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{Path(str(process.args[3])).name} does not come to an end") from error  # type: ignore[index]
        if process.returncode:
            raise Failed(f"a load program failed: {self.last_words()}")
        report: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
        return report

    def end(self) -> None:
        for process in reversed(self.running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)  # it may stand still
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(PATIENCE)
            if process.stdout is not None:
                process.stdout.close()


def wait_for(
    done: Callable[[], bool], process: subprocess.Popen[str], programs: Programs, patience: float = PATIENCE
) -> None:
    deadline = time.monotonic() + patience
    while not done():
        if process.poll() is not None:
            raise Failed(f"it ended at once: {programs.last_words()}")
        if time.monotonic() > deadline:
            raise Failed(f"waited in vain for it: {programs.last_words()}")
        time.sleep(0.02)


def first_line(process: subprocess.Popen[str]) -> str:
    """The first line of a program's output; empty if it ends, or does not come."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], LOAD_PATIENCE)
    return process.stdout.readline().strip() if ready else ""


def wait_for_ready(process: subprocess.Popen[str], programs: Programs) -> None:
    if first_line(process) != "ready":
        raise Failed(f"the clients do not come up: {programs.last_words()}")


def serves(case: Case, place: Place) -> bool:
    """Whether a relay of somebody else takes connections."""
    with socket.socket(socket.AF_INET if case.over_tcp else socket.AF_UNIX) as probe:
        try:
            probe.connect(("127.0.0.1", place.tcp) if case.over_tcp else str(place.socket))
        except OSError:
            return False
    return True


def start_relay(case: Case, place: Place, fan_out: int, programs: Programs) -> subprocess.Popen[str]:
    assert case.relay is not None
    with (place.folder / "output").open("w") as output:
        environment = case.peer.environment if case.peer else {}
        relay = programs.start(case.relay(place, fan_out), output, **environment)
    if case.peer:
        wait_for(lambda: serves(case, place), relay, programs)
    else:
        wait_for(lambda: all(text in programs.output() for text in case.ready), relay, programs)
    return relay


def load(point: Point, place: Place) -> list[str]:
    """The command of the publisher."""
    case, stream = point.case, point.stream
    words = ["-n", str(point.total), "-C", str(stream.channels), "-z", str(stream.size), "-W", str(stream.window)]
    if point.clients:
        words += ["-w", str(place.window)]
    if stream.paced:
        words += ["-r", str(PACE), "-t" if case.datagrams else "-T"]
    if not case.datagrams:
        return [str(place.programs / "pub"), "-P", case.protocol, *where(case, place), *words]
    words += ["-p", str(place.udp), "-a", stream.address, "-S", str(stream.sources)]
    words += [] if case.signed else ["-H"]
    words += ["-R", str(stream.run)] if stream.run > 1 else []
    words += ["-u", str(stream.warm)] if stream.warm else []
    return [str(place.programs / "flood"), *words, *(["-l"] if stream.long_names else [])]


def where(case: Case, place: Place) -> list[str]:
    return ["-t", str(place.tcp)] if case.over_tcp else ["-u", str(place.socket)]


def clients(case: Case, place: Place, fan_out: int, messages: int) -> list[str]:
    """The command of the clients, or of the listeners."""
    if case.alone:
        words = ["-p", str(place.udp), "-N", str(fan_out), "-n", str(messages), "-w", str(place.window)]
        return [str(place.programs / "listeners"), *words, *case.clients]
    words = ["-P", case.protocol, *where(case, place), "-K", str(fan_out), "-N", str(messages), "-w", str(place.window)]
    return [str(place.programs / "drain"), *words, *case.clients]


def is_stopped(process: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class Taken(NamedTuple):
    """What sender and receivers report; nanoseconds of the relay, and for a message before; KiB at first and last."""

    sent: dict[str, Any]
    got: dict[str, Any]
    used: int
    warm: float
    empty: int
    rss: int | None

    def result(self, blank: Sample, point: Point) -> Sample:
        case, stream, total = point.case, point.stream, point.total
        latency = self.got["latency"]
        seconds = (self.sent if case.alone or stream.warm else self.got)["seconds"]
        return replace(
            blank,
            messages=stream.messages,
            fan_out=point.deliveries / total,
            cpu_ns=self.used / stream.messages,
            clients_ns=0.0 if case.alone else self.got["cpu_ns"] / total,
            sender_ns=self.sent["cpu_ns"] / stream.messages,
            messages_per_second=stream.messages / seconds if seconds else 0.0,
            p50_us=latency["p50_us"] if latency["n"] else None,
            p99_us=latency["p99_us"] if latency["n"] else None,
            rss_kib=self.rss,
            grown_kib=None if self.rss is None else self.rss - self.empty,
            lost=point.deliveries - self.got["n"],
            bad=sum(self.got.get(name, 0) for name in ("bad", "gap", "back", "closed")),
        )


def take(point: Point, place: Place) -> Taken:
    """Start all, send, wait until it has arrived, end all; what comes before is not measured. Raises Failed."""
    case, warm = point.case, point.stream.warm
    programs = Programs(place.folder)
    before, empty, warmed = 0, 0, 0.0
    try:
        relay = None if case.alone else start_relay(case, place, point.clients, programs)
        receivers = programs.start(clients(case, place, point.clients, point.total), subprocess.PIPE)
        wait_for_ready(receivers, programs)
        time.sleep(0.1)  # for the floor, which has not accepted them all yet
        if relay:
            before, empty = cpu_of(relay.pid), kib_of(relay.pid)
        sender = programs.start(load(point, place), subprocess.PIPE)
        if warm:
            if first_line(sender) != "warm":
                raise Failed(f"what comes before does not arrive: {programs.last_words()}")
            wait_for(lambda: is_stopped(sender), sender, programs)
            time.sleep(point.stream.pause)
            if relay:
                now = cpu_of(relay.pid)
                warmed, before = (now - before) / warm, now
            sender.send_signal(signal.SIGCONT)
        sent, got = programs.result(sender), programs.result(receivers)
        if relay is not None and relay.poll() is not None:
            raise Failed(f"the relay ended: {programs.last_words()}")
        used = cpu_of(relay.pid) - before if relay else got["cpu_ns"]
        return Taken(sent, got, used, warmed, empty, kib_of(relay.pid) if relay else None)
    finally:
        programs.end()


def take_burst(point: Point, place: Place) -> tuple[int, float]:
    """Stop the daemon, send more than its socket holds, let it go on; the datagrams that it got, and ns for each.

    Raises Failed.
    """
    programs = Programs(place.folder)

    def counted(name: str) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{place.metrics}/metrics", timeout=PATIENCE) as page:
            return int(metric(page.read().decode(), name))

    def is_done() -> bool:
        return counted("datagrams_received_total") + counted("socket_drops_total") >= point.total

    try:
        relay = start_relay(point.case, place, 0, programs)
        relay.send_signal(signal.SIGSTOP)
        wait_for(lambda: is_stopped(relay), relay, programs)
        before = cpu_of(relay.pid)
        programs.result(programs.start(load(point, place), subprocess.PIPE))
        relay.send_signal(signal.SIGCONT)
        wait_for(is_done, relay, programs, LOAD_PATIENCE)
        held = counted("datagrams_received_total")
        return held, (cpu_of(relay.pid) - before) / held
    finally:
        programs.end()


def measure(point: Point, place: Place, blank: Sample) -> list[Sample]:
    """Return the samples of a run, one for each line of the point. Raises Failed."""
    if not point.clients:
        held, cost = take_burst(point, place)
        return [replace(blank, messages=point.total, held=held, cpu_ns=cost)]
    taken = take(point, place)
    whole = taken.result(blank, point)
    first = replace(whole, line=point.first, messages=point.stream.warm, cpu_ns=taken.warm)
    return [whole, first] if point.first else [whole]


def run_once(point: Point, number: int, attempt: int, programs: Path, daemon: Path, rules: Rules) -> list[Sample]:
    """Run a point in a place of its own, and judge the run."""
    point = replace(point, stream=shorter(point, rules))
    blank = Sample(point.axis, point.line, point.x, number, attempt)
    with tempfile.TemporaryDirectory(prefix="bccnd-bench-", ignore_cleanup_errors=True) as folder:
        place = Place(Path(folder), programs, daemon, free_port(), free_port(), free_port())
        wait_until_quiet(rules)
        with leave_alone():
            busy, own, start = machine_busy(), own_busy(), time.monotonic()
            try:
                found = measure(point, place, blank)
            except (Failed, OSError) as error:
                lines = [point.line, *([point.first] if point.first else [])]
                return [replace(blank, line=line, refused=f"failed: {error}") for line in lines]
            taken = time.monotonic() - start
            foreign = max(0.0, ((machine_busy() - busy) - (own_busy() - own)) / taken - point.case.beside)
    return [replace(one, foreign=round(foreign, 4), refused=judge(one, foreign, rules)) for one in found]


def shorter(point: Point, rules: Rules) -> Stream:
    if not rules.messages or not point.clients:  # a burst must be larger than what is held
        return point.stream
    few = max(rules.messages // point.unit, 1) * point.unit
    return replace(point.stream, messages=min(point.stream.messages, few))


def judge(sample: Sample, foreign: float, rules: Rules) -> str:
    """Why a run does not count."""
    if sample.lost or sample.bad:
        return f"{sample.lost} of its deliveries lost, {sample.bad} out of place"
    if foreign > rules.foreign:
        return f"disturbed: others had {foreign:.2f} of a processor"
    return ""
