"""Half an hour in which everything happens at once: `python -m tools.soak [--rounds N] [--seed N]`.

It is about what only real processes show over a long time: growth of memory, descriptors and tables, bugs in logs, and
whether everybody is served after each round. What becomes of each message is for the simulation.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Final

import bccnd
from bccnd.core.formats.tap_record import seq_of
from tests.e2e.harness import KEY, Stream, datagram
from tests.recorder.material import table
from tests.support import ROOT, kernel_drops, wait
from tools.soak.chaos import Chaos
from tools.soak.hosts import PATIENCE, Hosts

#: half an hour on two cores
ROUNDS: Final = 130
#: seconds of a round at least, and datagrams a second of a sender that goes on all the time
ROUND: Final = 10.0
RATE: Final = 250.0
#: messages of an input, which a crash may have recorded twice
INPUT: Final = 64
#: with fewer rounds growth is not judged, since tables are not full yet
ENOUGH: Final = 24
#: by how much anything may grow over the last half of the rounds: MB, share of its size, and what is counted
MEMORY, MEMORY_SHARE, COUNTED = 4.0, 0.05, 1.0
#: clients of each host that stay: its reader, gateways, the recorder
AT_HOME: Final = {"relay01": 1 + 2 + 1, "relay02": 1, "relay03": 1 + 1}


class Soak:
    """One run."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.hosts = Hosts(folder)
        self.chaos = Chaos(self.hosts, random.Random(seed))
        #: a program of each host that reads only at the end of a round: by then its queue has overflowed
        self.readers = {name: daemon.connect("soak/") for name, daemon in self.hosts.daemons.items()}
        self.stream = Stream(self.hosts.relay.port, RATE, self._sign)
        self.drops = 0.0
        #: quantities over the rounds, by name
        self.series: defaultdict[str, list[float]] = defaultdict(list)
        self.faults: list[str] = []

    @staticmethod
    def _sign(seq: int) -> bytes:
        return datagram("relay09/x/1", seq, f"soak/{seq % 8}", bytes(seq % 1200), KEY)

    def run(self, rounds: int) -> None:
        begun = time.monotonic()
        for number in range(1, rounds + 1):
            end = time.monotonic() + ROUND
            self.chaos.round(number)
            time.sleep(max(0.0, end - time.monotonic()))
            for fault in [*self._not_served(b"round %d" % number), *self._measure()]:
                self.faults.append(f"round {number}: {fault}")
                print(f"  FAULT {self.faults[-1]}", flush=True)
            spent = time.monotonic() - begun
            print(f"round {number} of {rounds}: {spent:.0f} s, {len(self.faults)} faults", flush=True)

    def _not_served(self, token: bytes) -> list[str]:
        """Publish on the host that was killed until each reader has got it; return the hosts where it does not."""
        waiting = dict(self.readers)
        deadline = time.monotonic() + PATIENCE
        while waiting and time.monotonic() < deadline:
            self.readers["relay01"].publish("soak/round", token)  # what finds a full queue is lost
            for name, reader in list(waiting.items()):
                until = time.monotonic() + 1.0
                while name in waiting and time.monotonic() < until:
                    event = reader.receive(0.1)
                    if isinstance(event, bccnd.Message) and event.payload == token:
                        del waiting[name]
        return [f"{name} is not served" for name in waiting]

    def _measure(self) -> list[str]:
        """Take the measure of everything; return what is wrong at once."""
        for name, most in AT_HOME.items():
            daemon = self.hosts.daemons[name]
            wait(lambda: daemon.metric("clients") <= most, f"{name} to have {most} clients", daemon.patience)  # noqa: B023
        for name, size in self.hosts.sizes().items():
            self.series[name].append(size)
        drops, self.drops = self.drops, kernel_drops(dict(self.hosts.relay.passed)["udp"])
        return [f"the kernel had no room for {self.drops - drops} datagrams"] if self.drops > drops else []

    def close(self) -> None:
        self.stream.close()
        for reader in self.readers.values():
            reader.close()
        self.hosts.close()

    def judge(self) -> list[str]:
        """Return all that is wrong, once it is closed."""
        growing = []
        for name, values in self.series.items():
            half = values[len(values) // 2 :]
            before, after = half[: len(half) // 2], half[len(half) // 2 :]
            allowed = max(MEMORY, median(half) * MEMORY_SHARE) if "MB" in name else COUNTED
            if len(values) >= ENOUGH and median(after) - median(before) > allowed / 2:
                growing.append(f"{name} grows: from {median(before):.2f} to {median(after):.2f}")
        journal = self.hosts.folder / "journal"
        rows = [row for row in table(journal) if row["src"] == "relay09/x/1" and row["verdict"] == "accepted"]
        twice = len(rows) - len({seq_of(row["seq_key"]) for row in rows})
        recorded = [f"{twice} records are there twice"] if twice > INPUT * self.chaos.crashes else []
        recorded += [f"set aside: {path}" for path in journal.rglob("*.bad*")]
        return [*self.faults, *growing, *self.hosts.bugs(), *recorded]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "soak", help="where the report goes")
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background a shell has the first one ignored
        signal.signal(number, signal.default_int_handler)
    print(f"seed {given.seed}: {given.rounds} rounds", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="bccnd-soak-"))
    run = Soak(folder, given.seed)
    try:
        run.run(given.rounds)
    except (AssertionError, OSError, bccnd.BccndError) as error:
        run.faults.append(f"it came to a stop: {error}")
    except KeyboardInterrupt:
        print("ended by Ctrl-C: what follows is about the rounds that were done")
    finally:
        run.close()
    faults = run.judge()
    lines = [f"{values[0]:9.2f} {values[-1]:9.2f}  {name}" for name, values in sorted(run.series.items())]
    lines += [*(f"FAULT: {fault}" for fault in faults), "failed" if faults else "passed"]
    text = f"seed {given.seed}, {run.chaos.crashes} crashes\n{'first':>9} {'last':>9}\n" + "\n".join(lines)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "soak.txt").write_text(text + "\n")
    print(text)
    if faults:
        print(f"the logs are in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
