"""What a message costs a Python program, with bccnd and with libraries of other systems:
`python -m tools.bench --clients`.

Invariant: the libraries take turns in every round, each run has a relay of its own, and lost messages are counted.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.support import free_port
from tools.bench import document
from tools.bench.cases import CASES, Case, Peer, Place
from tools.bench.document import console
from tools.bench.measure import Failed, Programs, leave_alone, start_relay, wait_for_ready
from tools.bench.programs import ROOT
from tools.bench.runner import Options, Runner

#: where the libraries are installed, apart from what bccnd needs
FOLDER: Final = ROOT / ".cache/client-libraries"
PROGRAM: Final = Path(__file__).parent / "load/python_client.py"
QUESTION: Final = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
#: seconds that installing may take
SLOW: Final = 600
#: messages of a quick run
FEW: Final = 2000


class Library(NamedTuple):
    """A library of Python, its packages, and the case whose relay it needs, if any."""

    name: str
    title: str
    packages: tuple[str, ...] = ()
    case: str = ""

    @property
    def relay(self) -> Case | None:
        """What it connects to."""
        return CASES.get(self.case)


LIBRARIES: Final = (
    Library("bccnd", "bccnd, blocking", (), "bccnd"),
    Library("bccnd_aio", "bccnd, asyncio", (), "bccnd"),
    Library("redis", "redis-py with hiredis", ("redis", "hiredis"), "redis"),
    Library("nats", "nats-py", ("nats-py",), "nats"),
    Library("mqtt", "paho-mqtt", ("paho-mqtt",), "mosquitto"),
    Library("lcm", "LCM", ("lcm",)),
    Library("zenoh", "Zenoh", ("eclipse-zenoh",)),
)


class Kind(NamedTuple):
    """What the measured program does: messages, a second, and the burst and pause of `load/python_client.py`."""

    title: str
    role: str
    messages: int
    rate: int
    burst: int = 1
    pause: float = 0.0


KINDS: Final = (
    Kind("subscriber, 15,000 a second", "subscribe", 15_000, 15_000),
    Kind("subscriber, 30,000 a second", "subscribe", 30_000, 30_000),
    Kind("subscriber, a backlog", "subscribe", 10_000, 10_000, 200, 0.02),
    Kind("publisher", "publish", 6000, 5000, 200, 0.04),
)


@dataclass
class Figure:
    """The runs of one library: microseconds of processor time for a message, and messages lost in all."""

    costs: list[float] = field(default_factory=list)
    lost: int = 0
    refused: str = ""

    def __str__(self) -> str:
        if not self.costs:
            return self.refused or "not measured"
        return f"{statistics.median(self.costs):.1f}" + (f" ({self.lost:,} lost)" if self.lost else "")


def server_version(peer: Peer | None) -> str:
    """Return the name and version of a server; nothing if it is not there."""
    if peer is None or peer.program is None:
        return ""
    asks = [peer.program, "-h" if peer.package == "mosquitto" else "--version"]
    environment = {**os.environ, **peer.environment}
    done = subprocess.run(asks, capture_output=True, text=True, check=False, timeout=SLOW, env=environment)
    found = re.search(r"\d+\.\d+\.\d+", done.stdout + done.stderr)
    return f"{peer.package} {found[0] if found else ''}"


def install(libraries: Sequence[Library]) -> tuple[Path, dict[str, str]]:
    """Install libraries; return their Python, and the versions of those that are there."""
    python = FOLDER / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True, timeout=SLOW)
    versions = {}
    for library in libraries:
        if not library.packages:
            continue
        question = [str(python), "-c", QUESTION, *library.packages]
        done = subprocess.run(question, capture_output=True, text=True, check=False, timeout=SLOW)
        if done.returncode:
            subprocess.run([str(python), "-m", "pip", "install", "-q", *library.packages], check=False, timeout=SLOW)
            done = subprocess.run(question, capture_output=True, text=True, check=False, timeout=SLOW)
        if not done.returncode:
            server = server_version(library.relay.peer if library.relay else None)
            versions[library.name] = ", ".join([*done.stdout.split(), *([server] if server else [])])
    return python, versions


class Bench:
    """All runs."""

    def __init__(self, options: Options, names: Sequence[str]) -> None:
        self.libraries = [library for library in LIBRARIES if library.name in names]
        self._runner = Runner(options)
        self._options = options
        self.rounds = self._runner.rounds
        self._python, self.versions = install(self.libraries)
        self.figures = {(library.name, kind): Figure() for library in self.libraries for kind in KINDS}

    def run(self) -> None:
        for number in range(1, self.rounds + 1):
            for kind in KINDS:
                for library in self.libraries:
                    self._measure(library, kind, number)

    def _measure(self, library: Library, kind: Kind, number: int) -> None:
        figure = self.figures[library.name, kind]
        case = library.relay
        if library.packages and library.name not in self.versions:
            figure.refused = "cannot be installed"
        elif case is not None and case.peer is not None and not case.peer.program:
            figure.refused = "no server"
        elif library.name == "bccnd_aio" and kind.role == "publish":
            figure.refused = "-"
        else:
            with (
                tempfile.TemporaryDirectory(prefix="bccnd-bench-", ignore_cleanup_errors=True) as folder,
                leave_alone(),
            ):
                programs, daemon = self._runner.programs, self._options.daemon.absolute()
                place = Place(Path(folder), programs, daemon, free_port(), free_port(), free_port())
                try:
                    cost, lost = self._take(library, kind, case, place)
                except Failed as error:
                    figure.refused = f"failed: {error}"
                else:
                    figure.costs.append(cost)
                    figure.lost += lost
        console.print(f"{number}/{self.rounds} {kind.title}: {library.title} {figure}")

    def _take(self, library: Library, kind: Kind, case: Case | None, place: Place) -> tuple[float, int]:
        count = FEW if self._options.quick else kind.messages
        programs = Programs(place.folder)
        receiving = Kind("", "subscribe", count, kind.rate)
        try:
            if case is not None:
                start_relay(case, place, 1, programs)
            measured = kind if kind.role == "subscribe" else receiving
            subscriber = programs.start(self._program(library, measured, count, place), subprocess.PIPE)
            wait_for_ready(subscriber, programs)
            publisher = programs.start(self._publisher(library, kind, count, place), subprocess.PIPE)
            got = programs.result(subscriber)
            cost = got if kind.role == "subscribe" else programs.result(publisher)
        finally:
            programs.end()
        return cost["cpu_ns"] / 1000, count - got["seen"]

    def _publisher(self, library: Library, kind: Kind, count: int, place: Place) -> list[str]:
        """Return the command of the publisher: in C where there is one, if the publisher is not what is measured."""
        words = ["-n", str(count), "-C", "16", "-r", str(kind.rate)]
        if kind.role == "publish":
            return self._program(library, kind, count, place)
        if library.case == "bccnd":
            return [str(place.programs / "flood"), *words, "-p", str(place.udp), "-a", "127.0.0.1"]
        if library.case:
            where = ["-t", str(place.tcp)] if library.case == "nats" else ["-u", str(place.socket)]
            return [str(place.programs / "pub"), "-P", library.name, *words, *where]
        return self._program(library, Kind("", "publish", count, kind.rate, 1, 1 / kind.rate), count, place)

    def _program(self, library: Library, kind: Kind, count: int, place: Place) -> list[str]:
        wheres = {
            "nats": f"127.0.0.1:{place.tcp}",
            "zenoh": f"127.0.0.1:{place.tcp}",
            "lcm": f"udpm://239.255.76.67:{place.udp}?ttl=0",
        }
        where = wheres.get(library.name, str(place.socket))
        words = [kind.role, library.name, where, str(count), str(kind.burst), str(kind.pause)]
        return ["env", f"PYTHONPATH={ROOT}", str(self._python), str(PROGRAM), *words]

    def table(self) -> Iterator[str]:
        rows = []
        for library in self.libraries:
            version = self.versions.get(library.name, "")
            costs = [str(self.figures[library.name, kind]) for kind in KINDS]
            rows.append([f"{library.title} {version}".strip(), *costs])
        yield from document.table(
            ["a Python program, us of CPU for a message", *(kind.title for kind in KINDS)], rows, 1
        )


def main(options: Options, names: Sequence[str]) -> int:
    """Measure, and write the table; return the exit status."""
    bench = Bench(options, names)
    bench.run()
    figures = {f"{name}: {kind.title}": vars(figure) for (name, kind), figure in bench.figures.items()}
    machine, daemon = document.about_machine(), document.about_daemon(options.daemon)
    command = ["python", "-m", "tools.bench", *sys.argv[1:]]
    about = document.about(command, document.now(), machine, daemon)
    text = "\n".join([*bench.table(), "", f"{about}; medians of {bench.rounds} interleaved rounds", ""])
    document.write("clients", options.out, {"versions": bench.versions, "figures": figures}, text)
    return 0 if any(figure.costs for figure in bench.figures.values()) else 1
