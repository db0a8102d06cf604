"""What each trick of the hot path and of the memory saves: `python -m tools.bench.tricks`.

A copy of the package in which one trick is undone runs beside this one. Messages out of silence go to both in turn, one
by one, so that what else the machine does falls on both alike; the medians of a message's processor time are compared.
Both are started anew for each ratio, because the places that a process gets in memory make a difference of their own. A
ratio above 1 is what the daemon would take without the trick. Two equal daemons show the noise.
"""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Final, NamedTuple

import click

from tests.e2e.harness import Daemon, Wire, wait
from tests.support import ROOT, datagram
from tools.bench.cases import BROADCAST, KEY, SIZE
from tools.bench.procs import cpu_of, kib_of
from tools.changed_package import Change, build

#: messages to each daemon of which one ratio is made, and seconds between them
MESSAGES: Final = 400
#: senders, each on a channel of its own
SOURCES: Final = 16
PAUSE: Final = 0.003
#: seconds after which a daemon has put its memory in order
SETTLED: Final = 2.0


@dataclass(frozen=True)
class Trick:
    """``undo`` are the changes without it."""

    what: str
    undo: tuple[Change, ...] = ()


TRICKS: Final = {
    "noise": Trick("nothing is undone"),
    "give_back": Trick(
        "memory that only the start needs is given back (`daemon/memory_pages.py`)",
        (
            Change("bccnd/daemon/memory_pages.py", "        trim(0)\n", "        pass\n"),
            Change(
                "bccnd/daemon/memory_pages.py", "mapping.end - mapping.start, _MADV_DONTNEED)", "0, _MADV_DONTNEED)"
            ),
        ),
    ),
}


class Site:
    """A daemon with one client, and a sender on its segment."""

    def __init__(self, folder: Path, package: Path, stack: ExitStack) -> None:
        self.daemon = Daemon(
            folder,
            {"heartbeat": {"interval": 0}},
            prefix=["env", f"PYTHONPATH={package}", "PYTHONSAFEPATH=1"],
            start=False,
        )
        self.daemon.configure({"integrity": self.daemon.with_key(KEY)})
        self.daemon.start()
        stack.enter_context(self.daemon)
        self._wire = stack.enter_context(Wire(self.daemon.port, BROADCAST))
        self._client = stack.enter_context(self.daemon.raw())
        self._client.settimeout(10.0)
        self._client.send(b"SUB bench/")
        wait(lambda: self.daemon.metric("subscriptions") == 1, "the subscription")
        self._seqs = dict.fromkeys(range(SOURCES), 0)
        for number in range(SOURCES):
            self.send(number)

    def send(self, number: int) -> None:
        """Send a message of this source and receive it."""
        self._seqs[number] += 1
        payload = b"x" * (SIZE - 70)
        self._wire.send(datagram(f"other/sender/{number}", self._seqs[number], f"bench/c{number}", payload, KEY))
        self._client.recv(1 << 16)

    def measure(self, number: int) -> int:
        """Return the processor time of a message of this source."""
        before = cpu_of(self.daemon.pid)
        self.send(number)
        time.sleep(PAUSE)
        return cpu_of(self.daemon.pid) - before


class Ratio(NamedTuple):
    """What the daemon takes without a trick, by what it takes with it."""

    time: float
    memory: float


def compare(package: Path, number: int) -> Ratio:
    """Start both daemons, in an order that alternates, and compare them."""
    dice = random.Random(number)
    packages = [("with", ROOT), ("without", package)]
    with tempfile.TemporaryDirectory(prefix="bccnd-tricks-") as folder, ExitStack() as stack:
        sites = {}
        for name, path in packages if number % 2 else packages[::-1]:
            sites[name] = Site(Path(folder) / name, path, stack)
        time.sleep(SETTLED)
        costs: dict[str, list[int]] = {name: [] for name in sites}
        for source in dice.choices(range(SOURCES), k=MESSAGES):
            for name, site in sites.items():
                costs[name].append(site.measure(source))
        memory = {name: kib_of(site.daemon.pid) for name, site in sites.items()}
    return Ratio(median(costs["without"]) / median(costs["with"]), memory["without"] / memory["with"])


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(TRICKS)))
@click.option("--starts", default=12, help="Starts of both daemons, each for one ratio.")
def main(names: tuple[str, ...], starts: int) -> None:
    """Compare the daemon with and without tricks (all of them by default; two minutes for each)."""
    print("| trick | processor time without it | middle half | memory without it |\n| --- | ---: | ---: | ---: |")
    for name in names or TRICKS:
        package = build(ROOT / "build/tricks" / name, TRICKS[name].undo)
        found = [compare(package, number) for number in range(starts)]
        low, middle, high = quantiles([one.time for one in found], n=4)
        memory = median([one.memory for one in found])
        print(f"| {TRICKS[name].what} | {middle:.3f} | {low:.3f} to {high:.3f} | {memory:.2f} |", flush=True)


if __name__ == "__main__":
    main()
