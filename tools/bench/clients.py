"""What a message costs a Python program, with bccnd and with libraries of other systems, each with a relay of its own:
`python -m tools.bench --axes programs`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from tools.bench.axes import Axis, Line, Point, Shown
from tools.bench.measure import Failed, Figures, Load, Programs
from tools.bench.programs import ROOT
from tools.bench.relays import RELAYS, Place

#: where the libraries are installed, apart from what bccnd needs
FOLDER: Final = ROOT / ".cache/client-libraries"
PROGRAM: Final = Path(__file__).parent / "load/python_client.py"
#: seconds that installing may take
SLOW: Final = 600
#: messages of a quick run
FEW: Final = 2000


class Library(NamedTuple):
    """A library of Python, its packages, and the relay that it needs, if any."""

    name: str
    title: str
    packages: tuple[str, ...] = ()
    relay: str = ""


class Kind(NamedTuple):
    """What the measured program does: messages, a second, and the burst and pause of `load/python_client.py`."""

    name: str
    title: str
    role: str
    messages: int
    rate: int
    burst: int = 1
    pause: float = 0.0


LIBRARIES: Final = (
    Library("bccnd", "bccnd, blocking", (), "bccnd"),
    Library("bccnd_aio", "bccnd, asyncio", (), "bccnd"),
    Library("redis", "redis-py with hiredis", ("redis", "hiredis"), "redis"),
    Library("nats", "nats-py", ("nats-py",), "nats"),
    Library("mqtt", "paho-mqtt", ("paho-mqtt",), "mosquitto"),
    Library("lcm", "LCM", ("lcm",)),
    Library("zenoh", "Zenoh", ("eclipse-zenoh",)),
)
KINDS: Final = (
    Kind("slow", "subscriber, 15,000 a second", "subscribe", 15_000, 15_000),
    Kind("fast", "subscriber, 30,000 a second", "subscribe", 30_000, 30_000),
    Kind("backlog", "subscriber, a backlog", "subscribe", 10_000, 10_000, 200, 0.02),
    Kind("publish", "publisher", "publish", 6000, 5000, 200, 0.04),
)


@cache
def python(packages: tuple[str, ...]) -> str:
    """Return a Python that has these packages. Raises Failed."""
    found = FOLDER / "bin/python"
    if not found.exists():
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True, timeout=SLOW)
    command = [str(found), "-m", "pip", "install", "-q", *packages]
    if packages and subprocess.run(command, check=False, timeout=SLOW).returncode:
        raise Failed("cannot be installed")
    return str(found)


def program(library: Library, kind: Kind, count: int, place: Place) -> list[str]:
    """Return the command of a program of the library."""
    wheres = {
        "nats": f"127.0.0.1:{place.tcp}",
        "zenoh": f"127.0.0.1:{place.tcp}",
        "lcm": f"udpm://239.255.76.67:{place.udp}?ttl=0",
    }
    where = wheres.get(library.name, str(place.socket))
    words = [kind.role, library.name, where, str(count), str(kind.burst), str(kind.pause)]
    return ["env", f"PYTHONPATH={ROOT}", python(library.packages), str(PROGRAM), *words]


def publisher(library: Library, kind: Kind, count: int, place: Place) -> list[str]:
    """Return the command of a publisher that is not measured: in C where there is one."""
    if library.relay:
        return Load(RELAYS[library.relay], 0, count, rate=kind.rate).sender(place, 0, count)
    return program(library, Kind("", "", "publish", count, kind.rate, 1, 1 / kind.rate), count, place)


def measure(library: Library, kind: Kind, place: Place) -> Figures:
    """Run a subscriber and a publisher, and return what the measured one of them took. Raises Failed."""
    relay = RELAYS.get(library.relay)
    if relay and relay.package and not relay.program:
        raise Failed(f"there is no {relay.package}: packaging/unpack-peers.sh .cache/peers, or apt-get install")
    count = min(kind.messages, FEW) if place.most < kind.messages else kind.messages
    subscribes = kind.role == "subscribe"
    receiving = kind if subscribes else Kind("", "", "subscribe", count, kind.rate)
    with Programs(place.folder) as programs:
        if relay:
            programs.start_relay(relay, place, 1)
        subscriber = programs.start_ready(program(library, receiving, count, place))
        command = publisher(library, kind, count, place) if subscribes else program(library, kind, count, place)
        sender = programs.start(command)
        got = programs.finish(subscriber)
        cost = got if subscribes else programs.finish(sender)
        return {"us": cost["cpu_ns"] / 1000, "missed": count - got["seen"]}


def points() -> Iterator[Point]:
    for kind in KINDS:
        for number, library in enumerate(LIBRARIES):
            if (library.name, kind.role) != ("bccnd_aio", "publish"):
                yield Point("programs", kind.name, number, partial(measure, library, kind))


PROGRAMS: Final = Axis(
    *("programs", "A Python program", "library", tuple(Line(kind.name, kind.title) for kind in KINDS), points),
    (Shown("us", "us of CPU for a message", ".1f"), Shown("missed", "messages lost in a run")),
    {number: library.title for number, library in enumerate(LIBRARIES)},
)
