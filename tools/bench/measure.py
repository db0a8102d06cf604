"""One run of one case: a relay of its own, its clients, its load, and what that took."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, TypeVar

from tests.support import free_port
from tools.bench.cases import BROADCAST, CHANNELS, SIZE, WINDOW, Case, Place
from tools.bench.procs import cpu_of, kib_of

#: messages a second when they are paced, and for how long
PACE: Final = 2000
PACED_SECONDS: Final = 2
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
    #: messages of a run, instead of what suits its case
    messages: int | None = None
    paced_seconds: float = PACED_SECONDS


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of one run."""

    messages: int = 0
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
    #: why it does not count; empty if it does
    refused: str = ""


R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Run(Result):
    """What came of one run of a case."""

    case: str
    fan_out: int
    mode: str
    round: int
    #: 1 for the first
    attempt: int = 1


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
                    process.wait()
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


def wait_for_ready(process: subprocess.Popen[str], programs: Programs) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
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


def load(case: Case, place: Place, mode: str, messages: int) -> list[str]:
    """The command of the publisher."""
    words = ["-n", str(messages), "-C", str(CHANNELS), "-z", str(SIZE)]
    words += ["-w", str(place.window), "-W", str(WINDOW)]
    if case.datagrams:
        words += ["-p", str(place.udp), "-a", BROADCAST if case.alone else "127.0.0.1"]
        words += [] if case.signed else ["-H"]
    else:
        words += ["-P", case.protocol, *where(case, place)]
    if mode == "paced":
        words += ["-r", str(PACE), "-t" if case.datagrams else "-T"]
    return [str(place.programs / ("flood" if case.datagrams else "pub")), *words]


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

    def result(self, blank: R, case: Case, messages: int, total: int, deliveries: int) -> R:
        """``messages`` of ``total`` were measured, which had to come to so many deliveries."""
        latency = self.got["latency"]
        return replace(
            blank,
            messages=messages,
            cpu_ns=self.used / messages,
            clients_ns=0.0 if case.alone else self.got["cpu_ns"] / total,
            sender_ns=self.sent["cpu_ns"] / messages,
            p50_us=latency["p50_us"] if latency["n"] else None,
            p99_us=latency["p99_us"] if latency["n"] else None,
            rss_kib=self.rss,
            grown_kib=None if self.rss is None else self.rss - self.empty,
            lost=deliveries - self.got["n"],
            bad=sum(self.got.get(name, 0) for name in ("bad", "gap", "back", "closed")),
        )


def take(
    case: Case, place: Place, fan_out: int, total: int, command: list[str], *, warm: int = 0, pause: float = 0.0
) -> Taken:
    """Start all, send, wait until it has arrived, end all; the first ``warm`` are not measured. Raises Failed."""
    programs = Programs(place.folder)
    before, empty, warmed = 0, 0, 0.0
    try:
        relay = None if case.alone else start_relay(case, place, fan_out, programs)
        receivers = programs.start(clients(case, place, fan_out, total), subprocess.PIPE)
        wait_for_ready(receivers, programs)
        time.sleep(0.1)  # for the floor, which has not accepted them all yet
        if relay:
            before, empty = cpu_of(relay.pid), kib_of(relay.pid)
        sender = programs.start(command, subprocess.PIPE)
        if warm:
            assert sender.stdout is not None
            if sender.stdout.readline() != "warm\n":
                raise Failed(f"what comes before does not arrive: {programs.last_words()}")
            wait_for(lambda: is_stopped(sender), sender, programs)
            time.sleep(pause)
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


def attempt(
    go: Callable[[Place, list[R]], list[R]], blank: list[R], programs: Path, daemon: Path, rules: Rules, beside: float
) -> list[R]:
    """One run in a place of its own, and the judgement of it; ``beside``: the share of a processor that is its own."""
    with tempfile.TemporaryDirectory(prefix="bccnd-bench-", ignore_cleanup_errors=True) as folder:
        place = Place(Path(folder), programs, daemon, free_port(), free_port(), free_port())
        wait_until_quiet(rules)
        with leave_alone():
            busy, own, start = machine_busy(), own_busy(), time.monotonic()
            try:
                found = go(place, blank)
            except (Failed, OSError) as error:
                return [replace(one, refused=f"failed: {error}") for one in blank]
            taken = time.monotonic() - start
            foreign = max(0.0, ((machine_busy() - busy) - (own_busy() - own)) / taken - beside)
    return [replace(one, foreign=round(foreign, 4), refused=judge(one, foreign, rules)) for one in found]


def run_once(
    case: Case, fan_out: int, mode: str, number: int, tried: int, programs: Path, daemon: Path, rules: Rules
) -> list[Run]:
    """One run of a case."""
    messages = rules.messages or case.messages(fan_out)
    if mode == "paced":
        messages = int(PACE * rules.paced_seconds)
    messages -= messages % fan_out

    def go(place: Place, blank: list[Run]) -> list[Run]:
        taken = take(case, place, fan_out, messages, load(case, place, mode, messages))
        run = taken.result(blank[0], case, messages, messages, case.deliveries(fan_out, messages))
        seconds = taken.sent["seconds"] if case.alone else taken.got["seconds"]
        return [replace(run, messages_per_second=messages / seconds if seconds else 0.0)]

    blank = Run(case.name, fan_out, mode, number, tried, messages=messages)
    return attempt(go, [blank], programs, daemon, rules, case.beside)


def judge(run: Result, foreign: float, rules: Rules) -> str:
    """Why a run does not count."""
    if run.lost or run.bad:
        return f"{run.lost} of its deliveries lost, {run.bad} out of place"
    if foreign > rules.foreign:
        return f"disturbed: others had {foreign:.2f} of a processor"
    return ""
