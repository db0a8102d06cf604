"""One run: a relay of its own, its clients, its load, and what that took."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final

from tests.e2e.harness import Daemon, Wire, datagram
from tests.prometheus import metric
from tools.bench.programs import cpu_of, kib_of
from tools.bench.relays import CHANNELS, SIZE, Place, Relay

#: seconds; generous, because it only matters when something is broken
PATIENCE: Final = 20.0
#: a load that has not ended by then never will
LOAD_PATIENCE: Final = 120.0
#: for which a daemon without traffic is watched; a quick run watches for one second
IDLE_SECONDS: Final = 180
#: messages a second when they are paced
PACE: Final = 2000
#: messages under way at most, at full load: enough to keep a relay busy, and no queue overflows
WINDOW: Final = 128
#: Relay, publisher and clients share one processor: then no figure depends on where the scheduler puts whom, and no
#: wake-up has to go to another processor, which in a virtual machine costs an exit to the hypervisor, at times as much
#: as the work itself. So the processor time of a message repeats to a few per cent. We ourselves stay on the others.
PROCESSOR: Final = 1 if 1 in os.sched_getaffinity(0) else min(os.sched_getaffinity(0))

#: figures by name
Figures = dict[str, float]


class Failed(Exception):
    """A run did not come to an end; the text says why."""


@dataclass(frozen=True)
class Load:
    """A relay with clients, and what is sent in one run."""

    relay: Relay
    clients: int
    messages: int
    #: sent before anything is measured, and the seconds between both
    warm: int = 0
    pause: float = 0.0
    channels: int = CHANNELS
    #: messages in a row on one channel; 1: all channels by turns
    run: int = 1
    sources: int = 4
    #: with the names that programs have on real hosts
    long_names: bool = False
    #: bytes of the whole datagram
    size: int = SIZE
    window: int = WINDOW
    #: of loopback; the daemon receives it wherever it is sent
    address: str = "127.0.0.1"
    #: messages a second; 0: as fast as it goes
    rate: int = 0
    #: one message in so many has a subscriber
    every: int = 1

    def limited(self, most: int) -> Load:
        """Return the same with fewer messages."""
        unit = self.clients if "-e" in self.relay.clients else self.every
        return replace(self, messages=min(self.messages, max(most // unit, 1) * unit))

    @property
    def total(self) -> int:
        return self.warm + self.messages

    @property
    def deliveries(self) -> int:
        """Return the deliveries of all that is sent."""
        return self.total // self.every * (1 if self.relay.one_reader else self.clients)

    def sender(self, place: Place, first: int, end: int) -> list[str]:
        """Return the command of the sender of some messages."""
        protocol = "bccn" if self.relay.datagrams else self.relay.protocol
        words = ["-P", protocol, "-b", first, "-n", end, "-C", self.channels, "-z", self.size, "-W", self.window]
        words += ["-w", place.folder / "window"] if self.clients else []
        words += ["-r", self.rate] if self.rate else []
        if self.relay.datagrams:
            words += ["-a", self.address, "-t", place.udp, "-S", self.sources, "-R", self.run]
        else:
            words += where(self.relay, place)
        return [str(place.programs / "send"), *map(str, words), *(["-l"] if self.long_names else [])]

    def receivers(self, place: Place) -> list[str]:
        """Return the command of the clients."""
        words = ["-P", self.relay.protocol, "-K", self.clients, "-N", self.total, "-w", place.folder / "window"]
        words += where(self.relay, place) if self.relay.start else ["-t", place.udp, "-p", self.clients]
        return [str(place.programs / "drain"), *map(str, words), *self.relay.clients]


def where(relay: Relay, place: Place) -> list[object]:
    return ["-t", place.tcp] if relay.protocol == "nats" else ["-u", place.socket]


def leave_processor_alone() -> None:
    """Keep this process off the processor that is measured, if there is another one."""
    os.sched_setaffinity(0, (os.sched_getaffinity(0) - {PROCESSOR}) or {PROCESSOR})


@dataclass
class Programs:
    """The programs of one run; none of them outlives it."""

    folder: Path
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running:
            process.kill()
            process.wait(PATIENCE)
            if process.stdout is not None:
                process.stdout.close()

    def start(
        self, command: Sequence[str], output: int | IO[str] = subprocess.PIPE, **environment: str
    ) -> subprocess.Popen[str]:
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

    def start_relay(self, relay: Relay, place: Place, clients: int) -> subprocess.Popen[str]:
        assert relay.start is not None
        environment = relay.environment if relay.package else {}
        with (self.folder / "output").open("w") as output:
            process = self.start(relay.start(place, clients), output, **environment)
        self.wait_for(lambda: re.search("ready|running", self.output(), re.IGNORECASE), process)
        return process

    def start_ready(self, command: Sequence[str]) -> subprocess.Popen[str]:
        """Start a program, and wait until it says that it is ready. Raises Failed."""
        process = self.start(command)
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], LOAD_PATIENCE)
        if not ready or process.stdout.readline().strip() != "ready":
            raise Failed(f"the clients do not come up: {self.last_words()}")
        return process

    def output(self) -> str:
        return "".join(path.read_text() for path in map(self.folder.joinpath, ("output", "errors")) if path.exists())

    def last_words(self) -> str:
        lines = self.output().strip().splitlines()
        return lines[-1] if lines else "without a word"

    def finish(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """Return what a load program reports at its end. Raises Failed."""
        try:
            output, _ = process.communicate(timeout=LOAD_PATIENCE)
        except subprocess.TimeoutExpired as error:
            raise Failed("a load program does not come to an end") from error
        if process.returncode:
            raise Failed(f"a load program failed: {self.last_words()}")
        lines = output.strip().splitlines()
        report: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return report

    def wait_for(self, done: Callable[[], object], process: subprocess.Popen[str], patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not done():
            if process.poll() is not None:
                raise Failed(f"it ended at once: {self.last_words()}")
            if time.monotonic() > deadline:
                raise Failed(f"waited in vain for it: {self.last_words()}")
            time.sleep(0.02)


def measure(load: Load, place: Place) -> Figures:
    """Start all, send, wait until it has arrived, end all; what is sent before is not measured. Raises Failed."""
    load = load.limited(place.most)
    figures: Figures = {}
    with Programs(place.folder) as programs:
        relay = programs.start_relay(load.relay, place, load.clients) if load.relay.start else None
        receivers = programs.start_ready(load.receivers(place))
        time.sleep(0.1)  # for the floor, which has not accepted them all yet
        before, empty = (cpu_of(relay.pid), kib_of(relay.pid)) if relay else (0, 0)
        if load.warm and relay:
            programs.finish(programs.start(load.sender(place, 0, load.warm)))
            figures["first_ns"] = (cpu_of(relay.pid) - before) / load.warm
            time.sleep(load.pause)
            before = cpu_of(relay.pid)
        programs.finish(programs.start(load.sender(place, load.warm, load.total)))
        got = programs.finish(receivers)
        if relay is None:
            return {"cpu_ns": got["cpu_ns"] / load.messages} | faults(load, got)
        if relay.poll() is not None:
            raise Failed(f"the relay ended: {programs.last_words()}")
        figures["cpu_ns"] = (cpu_of(relay.pid) - before) / load.messages
        figures["all_ns"] = figures["cpu_ns"] + got["cpu_ns"] / load.total
        figures["resident_mb"] = kib_of(relay.pid) * 1024 / 1e6
        figures["source_bytes"] = (kib_of(relay.pid) - empty) * 1024 / load.sources
        if load.rate:
            figures["p50_us"] = got["p50_us"]
    return figures | faults(load, got)


def faults(load: Load, got: dict[str, Any]) -> Figures:
    return {"lost": load.deliveries - got["n"], "bad": got["bad"]}


def measure_burst(load: Load, place: Place) -> Figures:
    """Stop the daemon, send more than its socket holds, and let it go on. Raises Failed."""

    def counted(name: str) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{place.metrics}/metrics", timeout=PATIENCE) as page:
            return int(metric(page.read().decode(), name))

    with Programs(place.folder) as programs:
        relay = programs.start_relay(load.relay, place, 0)
        relay.send_signal(signal.SIGSTOP)
        before = cpu_of(relay.pid)
        programs.finish(programs.start(load.sender(place, 0, load.messages)))
        relay.send_signal(signal.SIGCONT)
        names = ("datagrams_received_total", "socket_drops_total")
        programs.wait_for(lambda: sum(map(counted, names)) >= load.messages, relay, LOAD_PATIENCE)
        held = counted("datagrams_received_total")
        return {"cpu_ns": (cpu_of(relay.pid) - before) / held, "held": held}


def measure_idle(sources: int, place: Place) -> Figures:
    """Return the share of a core that a daemon takes after it has received from so many sources, and its MB."""
    with Daemon(place.folder, {"reports": {"interval": "10s"}}) as daemon, Wire(daemon.port) as wire:
        for number in range(sources):
            wire.send(datagram(f"host{number % 1000}/program/{number}", 1, "bench/x", b""))
            if number % 200 == 0:
                time.sleep(0.005)  # until these are read
        time.sleep(3)
        begin, began = cpu_of(daemon.pid), time.monotonic_ns()
        time.sleep(min(IDLE_SECONDS, place.most / 4096))
        share = (cpu_of(daemon.pid) - begin) / (time.monotonic_ns() - began)
        return {"core": share, "resident_mb": kib_of(daemon.pid) * 1024 / 1e6}
