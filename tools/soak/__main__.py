"""Half an hour in which everything happens at once: `python -m tools.soak [--rounds N] [--seed N]`.

It is about what only real processes have over a long time: memory, descriptors, gateways, the recorder. What becomes of
each message is checked too, by the ledger of the simulation, in rounds without a crash.
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
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Final

from bccnd.core.formats.tap_record import seq_of
from tests.recorder.material import table
from tests.support import ROOT, kernel_drops, wait
from tools.soak.chaos import Chaos
from tools.soak.hosts import Hosts
from tools.soak.streams import Streams, Witness

#: half an hour on two cores
ROUNDS: Final = 130
#: beats of the streams in a round, some ten seconds; and before the first round, in which nothing happens to anybody
BEATS, WARM_UP = 500, 25
#: seconds for the beats of a round, and for what is still on its way behind them
SETTLE: Final = 30.0
#: messages of an input, which a crash may have recorded twice
INPUT: Final = 64
#: with fewer rounds growth is not judged, since tables are not full yet
ENOUGH: Final = 24
#: by how much anything may grow over the last half of the rounds: MB, share of its size, and what is counted
MEMORY, MEMORY_SHARE, COUNTED = 4.0, 0.05, 1.0
#: witnesses and publishers, gateways, the recorder
AT_HOME: Final = {"relay01": 3 + 1 + 2 + 1, "relay02": 1, "relay03": 1 + 1}


class Soak:
    """One run."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.hosts = Hosts(folder)
        chance = random.Random(seed)
        relay, near, far = self.hosts.daemons.values()
        self.due = [Witness(relay), Witness(relay, batch=True), Witness(relay, batch=True, slow=True), Witness(near)]
        self.behind_link = Witness(far)
        self.streams = Streams(relay, [*self.due, self.behind_link], chance)
        self.chaos = Chaos(self.hosts, chance)
        self.chaos.on_crash = self._expect_crash
        self.crashes = 0
        self.drops = 0.0
        #: quantities over the rounds, by name
        self.series: defaultdict[str, list[float]] = defaultdict(list)
        self.faults: list[str] = []

    def _expect_crash(self) -> None:
        self.crashes += 1
        for one in self.due:
            if one.host == "relay01":
                one.ledger.crash(0)

    def run(self, rounds: int) -> None:
        begun = time.monotonic()
        # Nothing is missed of a source that was never heard: first everybody hears all of them.
        self._round(0, WARM_UP)
        for number in range(1, rounds + 1):
            self._round(number, BEATS)
            self._measure(number)
            spent = time.monotonic() - begun
            print(f"round {number} of {rounds}: {spent:.0f} s, {len(self.faults)} faults", flush=True)

    def _round(self, number: int, beats: int) -> None:
        """Let everything happen for some beats, and then check that all of it has come."""
        streams, linked = self.streams, self.behind_link.received
        streams.tokens, streams.left, streams.hurry = [], beats, False
        if number:
            self.chaos.round(number)
        wait(lambda: not streams.left, "the publishers", SETTLE + beats)
        streams.hurry = True
        time.sleep(1.0)  # for queues that are full, so that what follows finds room
        streams.left = 1
        wait(lambda: not streams.left, "the publishers", SETTLE)
        last = set(streams.tokens[-2:])
        with suppress(AssertionError):  # named below
            wait(lambda: all(one.lasts() == last for one in self.due), "the last messages", SETTLE)
        found = [f"{one.name} has not got the last message" for one in self.due if one.lasts() != last]
        found += ["nothing comes over the link"] if self.behind_link.received == linked and not self.chaos.cut else []
        for one in self.due:
            one.settle(streams.tokens, crashed=self.chaos.crashed)
        for one in (*self.due, self.behind_link):
            found += [f"{one.name}: {fault}" for fault in one.faults]
            one.faults.clear()
        self._add_faults(number, found)
        assert not streams.fault, streams.fault

    def _add_faults(self, number: int, found: list[str]) -> None:
        for fault in found:
            self.faults.append(f"round {number}: {fault}")
            print(f"  FAULT {self.faults[-1]}", flush=True)

    def _measure(self, number: int) -> None:
        for name, most in AT_HOME.items():
            daemon = self.hosts.daemons[name]
            wait(lambda: daemon.metric("clients") <= most, f"{name} to have {most} clients", daemon.patience)  # noqa: B023
        for name, size in self.hosts.sizes().items():
            self.series[name].append(size)
        drops, self.drops = self.drops, kernel_drops(dict(self.hosts.relay.passed)["udp"])
        if self.drops > drops:
            self._add_faults(number, [f"the kernel had no room for {self.drops - drops} datagrams"])

    def close(self) -> None:
        self.streams.close()
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
        recorded = [f"{twice} records are there twice"] if twice > INPUT * self.crashes else []
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
    except (AssertionError, OSError) as error:
        run.faults.append(f"it came to a stop: {error}")
    except KeyboardInterrupt:
        print("ended by Ctrl-C: what follows is about the rounds that were done")
    finally:
        run.close()
    faults = run.judge()
    lines = [f"{values[0]:9.2f} {values[-1]:9.2f}  {name}" for name, values in sorted(run.series.items())]
    lines += [*(f"FAULT: {fault}" for fault in faults), "failed" if faults else "passed"]
    text = f"seed {given.seed}, {run.crashes} crashes\n{'first':>9} {'last':>9}\n" + "\n".join(lines)
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
