"""One run of one case: a relay of its own, its clients, its load, and what that took.

Law: a figure counts only if nothing was lost, nothing came twice or out of order, and nobody else had more than a
little of the machine meanwhile. Everything else is a run that did not count, with the reason, and is kept as well.
"""

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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Protocol

from tests.bench.cases import BROADCAST, SIZE, WINDOW, Case, Place, free_port

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
    #: how long to wait for a quiet machine before a run
    patience: float = PATIENCE


@dataclass(frozen=True)
class Run:
    """What came of one run."""

    case: str
    fan_out: int
    mode: str
    round: int
    #: 1 for the first
    attempt: int = 1
    messages: int = 0
    #: processor time of the relay for a message (of all listeners where there is none), user and system
    cpu_ns: float = 0.0
    #: the same of all clients together; nothing where there is no relay
    clients_ns: float = 0.0
    messages_per_second: float = 0.0
    p50_us: float | None = None
    p99_us: float | None = None
    lost: int = 0
    #: twice, out of order, unreadable, or behind a gap
    bad: int = 0
    #: share of a processor that others had
    foreign: float = 0.0
    rss_kib: int | None = None
    #: why it does not count; empty if it does
    refused: str = ""


def cpu_of(pid: int) -> int:
    """Nanoseconds that the threads of a process have been on a processor, user and system."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def rss_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


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
    deadline = time.monotonic() + rules.patience
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

    def said(self) -> str:
        return "".join(path.read_text() for path in map(self.folder.joinpath, ("output", "errors")) if path.exists())

    def last_words(self) -> str:
        lines = self.said().strip().splitlines()
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
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            if process.stdout is not None:
                process.stdout.close()


def wait_for(done: Callable[[], bool], process: subprocess.Popen[str], programs: Programs) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        if process.poll() is not None:
            raise Failed(f"it ended at once: {programs.last_words()}")
        if time.monotonic() > deadline:
            raise Failed(f"it does not come up: {programs.last_words()}")
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
        wait_for(lambda: all(text in programs.said() for text in case.ready), relay, programs)
    return relay


def load(case: Case, place: Place, fan_out: int, mode: str, messages: int) -> list[str]:
    """The command of the publisher."""
    words = ["-n", str(messages), "-C", str(case.channels(fan_out)), "-z", str(SIZE)]
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
    if case.shares:
        words += ["-e", str(case.channels(fan_out)), "-p", str(fan_out)]
    return [str(place.programs / "drain"), *words, *case.clients]


def measure(case: Case, place: Place, fan_out: int, mode: str, messages: int, run: Run) -> Run:
    """Start everything, send, wait until it has arrived, and end everything. Raises Failed."""
    programs = Programs(place.folder)
    try:
        relay = None if case.alone else start_relay(case, place, fan_out, programs)
        receivers = programs.start(clients(case, place, fan_out, messages), subprocess.PIPE)
        wait_for_ready(receivers, programs)
        time.sleep(0.1)  # for the floor, which has not accepted them all yet
        before = cpu_of(relay.pid) if relay else 0
        sent = programs.result(programs.start(load(case, place, fan_out, mode, messages), subprocess.PIPE))
        got = programs.result(receivers)
        if relay is not None and relay.poll() is not None:
            raise Failed(f"the relay ended: {programs.last_words()}")
        used = cpu_of(relay.pid) - before if relay else got["cpu_ns"]
        rss = rss_of(relay.pid) if relay else None
    finally:
        programs.end()
    seconds = sent["seconds"] if case.alone else got["seconds"]
    latency = got["latency"]
    return Run(
        *(run.case, run.fan_out, run.mode, run.round, run.attempt),
        messages=messages,
        cpu_ns=used / messages,
        clients_ns=0.0 if case.alone else got["cpu_ns"] / messages,
        messages_per_second=messages / seconds if seconds else 0.0,
        p50_us=latency["p50_us"] if latency["n"] else None,
        p99_us=latency["p99_us"] if latency["n"] else None,
        lost=case.deliveries(fan_out, messages) - got["n"],
        bad=sum(got.get(name, 0) for name in ("bad", "gap", "back", "closed")),
        rss_kib=rss,
    )


def run_once(
    case: Case, fan_out: int, mode: str, number: int, attempt: int, programs: Path, daemon: Path, rules: Rules
) -> Run:
    """One run with all that belongs to it, and the judgement of it."""
    messages = rules.messages or case.messages(fan_out)
    if mode == "paced":
        messages = int(PACE * rules.paced_seconds)
    messages -= messages % fan_out
    run = Run(case.name, fan_out, mode, number, attempt, messages)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bccnd-bench-")))
        tcp = free_port(socket.SOCK_STREAM)
        metrics = free_port(socket.SOCK_STREAM, frozenset({tcp}))
        place = Place(folder, programs, daemon, free_port(socket.SOCK_DGRAM), tcp, metrics)
        wait_until_quiet(rules)
        stack.enter_context(leave_alone())
        busy, own, start = machine_busy(), own_busy(), time.monotonic()
        try:
            run = measure(case, place, fan_out, mode, messages, run)
        except Failed as error:
            return changed(run, refused=f"failed: {error}")
        taken = time.monotonic() - start
        foreign = max(0.0, ((machine_busy() - busy) - (own_busy() - own)) / taken - case.beside)
    return changed(run, foreign=round(foreign, 4), refused=judge(run, foreign, rules))


def changed(run: Run, **values: Any) -> Run:
    return Run(**{**vars(run), **values})


class Counted(Protocol):
    """What is known of a run's deliveries."""

    @property
    def lost(self) -> int: ...
    @property
    def bad(self) -> int: ...


def judge(run: Counted, foreign: float, rules: Rules) -> str:
    """Why a run does not count."""
    if run.lost or run.bad:
        return f"{run.lost} of its deliveries lost, {run.bad} out of place"
    if foreign > rules.foreign:
        return f"disturbed: others had {foreign:.2f} of a processor"
    return ""
