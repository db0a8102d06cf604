"""Half an hour in which everything happens at once: `python -m tools.soak [--rounds N] [--beats N] [--seed N]`."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

from bccnd.core.formats.tap_record import seq_of
from tests.support import ROOT, kernel_drops, wait
from tools.bench.programs import kib_of
from tools.soak.chaos import Chaos
from tools.soak.hosts import Hosts
from tools.soak.streams import Load, Readers, Witness

#: half an hour on two cores
ROUNDS: Final = 130
#: beats of the publishers in a round: some ten seconds
BEATS: Final = 500
#: beats before the first round, in which nothing happens to anybody
WARM_UP: Final = 25
#: seconds for what is still on its way at the end of a round
SETTLE: Final = 30.0
#: messages of an input, which a crash may have recorded twice
INPUT: Final = 64
#: with fewer rounds growth is not judged, since tables are not full yet
ENOUGH: Final = 24
#: by how much anything may grow over the last half of the rounds: MB, share of its size, and what is counted
MEMORY, MEMORY_SHARE, COUNTED = 4.0, 0.05, 1.0
OUT: Final = ROOT / "build" / "soak"


class Soak:
    """One run."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.hosts = Hosts(folder)
        self.chance = random.Random(seed)
        #: quantities over the rounds, by name
        self.series: defaultdict[str, list[float]] = defaultdict(list)
        self.faults: list[str] = []
        self.figures: dict[str, Any] = {"seed": seed}
        relay, near, far = (str(one.bus) for one in self.hosts.daemons.values())
        self.witnesses = [
            Witness("relay01", relay, "rlbcgdL", tag=b"w0"),
            Witness("relay01", relay, "rlbcgL", batch=True),
            Witness("relay01", relay, "rlbcgL", slow=True),
            Witness("relay01", relay, "rlbcgL", slow=True, batch=True),
            Witness("relay02", near, "rlbcg"),
            Witness("relay02", near, "rlbcg", slow=True, batch=True),
            Witness("relay03", far, "c"),
        ]
        self.load = Load(self.hosts.port, {"l": relay, "b": near, "c": far}, self.witnesses[0].identity, self.chance)
        self.readers = Readers(self.witnesses)
        self.chaos = Chaos(self.hosts, self.chance)
        #: witnesses, publishers, gateways, the recorder
        self.at_home = {"relay01": 4 + 1 + 2 + 1, "relay02": 2 + 1, "relay03": 1 + 1 + 1}
        #: what was counted in earlier rounds
        self._known: Counter[str] = Counter()

    def run(self, rounds: int, beats: int) -> None:
        begun = time.monotonic()
        # Nothing is missed of a source that was never heard: first everybody hears all of them.
        self._publish(0, WARM_UP)
        for number in range(1, rounds + 1):
            self._publish(number, beats)
            self._measure(number)
            self._check_link(number)
            spent = self.figures["seconds"] = round(time.monotonic() - begun)
            print(f"round {number} of {rounds}: {spent} s, {len(self.faults)} faults", flush=True)

    def _publish(self, number: int, beats: int) -> None:
        self.load.begin(beats)
        if number:
            self.chaos.round(number)
        self.load.rest()
        assert not self.load.fault, self.load.fault
        self._settle(number)

    # -- every message is accounted for

    def _unaccounted(self, one: Witness) -> int:
        """Return the messages that a witness has neither got nor was told of, but for those that the link has lost."""
        if one.host == "relay03":
            return one.unaccounted(self.load.sent)
        over_the_link = max(other.got["c"] for other in self.witnesses if other.host == one.host)
        return one.unaccounted({**self.load.sent, "c": over_the_link})

    def _settle(self, number: int) -> None:
        """Wait until everything that was sent has come, and check that nothing is missing. What a crash may lose is for
        the simulation to judge: here the witnesses must be told of it, and be served again."""
        self.readers.hurry = True
        deadline = time.monotonic() + SETTLE
        still, before = 0, -1
        while time.monotonic() < deadline and still < 5:
            time.sleep(0.1)
            now = sum(sum(one.got.values()) + one.reported for one in self.witnesses)
            whole = not any(self._unaccounted(one) for one in self.witnesses)
            still, before = still + 1 if now == before and whole else 0, now
        self.readers.hurry = False
        crashed = self.chaos.crashes[-1:] == [number]
        for one in self.witnesses:
            left = self._unaccounted(one)
            if left and not crashed:
                detail = {kind: self.load.sent[kind] - one.got[kind] for kind in one.due}
                self._fault(number, f"{one.name}: {left} messages neither came nor were told to be lost ({detail})")
            one.excused += left
            one.may_double = False
            if one.host == "relay01" and one.crashes != len(self.chaos.crashes):
                self._fault(number, f"{one.name}: it was told of {one.crashes} of {len(self.chaos.crashes)} crashes")
            for fault in [*one.faults, *(["it was cut off"] if one.ended else [])]:
                self._fault(number, f"{one.name}: {fault}")
            one.faults.clear()

    def _check_link(self, number: int) -> None:
        """Check that messages have come over the link both ways, unless it was away."""
        for one, kind in ((self.witnesses[0], "c"), (self.witnesses[-1], "l")):
            if one.got[kind] == self._known[one.host] and self.chaos.kills[-1:] != [number]:
                self._fault(number, f"{one.name}: nothing comes over the link")
            self._known[one.host] = one.got[kind]

    def _fault(self, number: int, text: str) -> None:
        self.faults.append(f"round {number}: {text}")
        print(f"  FAULT {self.faults[-1]}", flush=True)

    # -- what everything takes

    def _measure(self, number: int) -> None:
        for name, daemon in self.hosts.daemons.items():
            most = self.at_home[name]
            wait(lambda: daemon.metric("clients") <= most, f"{name} to have {most} clients", daemon.patience)  # noqa: B023
            for metric in ("sources", "clients", "subscriptions"):
                self.series[f"{name}: {metric}"].append(daemon.metric(metric))
            self.series[f"{name}: queue MB"].append(daemon.metric("queue_bytes") / 1e6)
            if daemon.metric("datagrams_total", verdict="internal_error"):
                self._fault(number, f"{name}: internal_error")
        for name, pid in self.hosts.processes().items():
            with suppress(FileNotFoundError, ProcessLookupError):
                self.series[f"{name}: descriptors"].append(len(os.listdir(f"/proc/{pid}/fd")))
                self.series[f"{name}: resident MB"].append(kib_of(pid) * 1024 / 1e6)
        kept = sum(os.fstat(fd).st_blocks * 512 for fds in list(self.hosts.relay.store.values()) for fd in fds)
        self.series["kept for the next daemon, MB"].append(kept / 1e6)
        drops = kernel_drops(dict(self.hosts.relay.passed)["udp"])
        if drops > self._known["kernel"]:
            self._fault(number, f"the kernel had no room for {drops - self._known['kernel']} datagrams")
        self._known["kernel"] = drops

    def _growing(self) -> list[str]:
        """Return what has grown from the third quarter of the rounds to the last one."""
        found = []
        for name, values in self.series.items():
            half = values[len(values) // 2 :]
            before, after = half[: len(half) // 2], half[len(half) // 2 :]
            allowed = max(MEMORY, median(half) * MEMORY_SHARE) if "MB" in name else COUNTED
            if len(values) >= ENOUGH and median(after) - median(before) > allowed / 2:
                found.append(f"{name} grows: from {median(before):.2f} to {median(after):.2f}")
        return found

    # -- the end

    def close(self) -> None:
        self.load.close()
        self.readers.close()
        self.hosts.close()

    def judge(self) -> list[str]:
        """Return all that is wrong."""
        return [*self.faults, *self._growing(), *self.hosts.bugs(), *self._journal()]

    def _journal(self) -> list[str]:
        """Check what the recorder has written: no record twice but by a crash, and nothing set aside as bad."""
        from tests.recorder.material import table

        journal = self.hosts.folder / "journal"
        rows = [row for row in table(journal) if row["src"] == "relay09/x/1" and row["verdict"] == "accepted"]
        seqs = [seq_of(row["seq_key"]) for row in rows]
        twice = len(seqs) - len(set(seqs))
        faults = [f"{twice} records are there twice"] if twice > INPUT * len(self.chaos.crashes) else []
        return faults + [f"set aside: {path}" for path in journal.rglob("*.bad*")]

    def report(self, faults: list[str]) -> str:
        """Return what was done, in figures, and the faults."""
        self.figures |= {
            "messages sent": sum(self.load.sent.values()),
            "messages that witnesses received": sum(sum(one.got.values()) for one in self.witnesses),
            "losses reported to slow witnesses": sum(one.reported for one in self.witnesses),
            "lost by crashes": sum(one.excused for one in self.witnesses),
            "lost over the link": self.load.sent["c"] - self.witnesses[0].got["c"],
            **dict(sorted(self.chaos.done.items())),
        }
        lines = [f"{value!s:>14}  {name}" for name, value in self.figures.items()]
        lines += ["", f"{'first':>9} {'last':>9}"]
        lines += [f"{values[0]:9.2f} {values[-1]:9.2f}  {name}" for name, values in sorted(self.series.items())]
        lines += ["", *(f"FAULT: {fault}" for fault in faults), "failed" if faults else "passed"]
        return "\n".join(lines) + "\n"


def soak(rounds: int, beats: int, seed: int, out: Path) -> tuple[list[str], Soak]:
    """Run a soak, and write the report to ``out``; return the faults, and the run."""
    folder = Path(tempfile.mkdtemp(prefix="bccnd-soak-"))
    run = Soak(folder, seed)
    try:
        run.run(rounds, beats)
    except (AssertionError, OSError) as error:
        run.faults.append(f"it came to a stop: {error}")
    except KeyboardInterrupt:
        print("ended by Ctrl-C: what follows is about the rounds that were done")
    finally:
        run.close()
    faults = run.judge()
    text = run.report(faults)
    out.mkdir(parents=True, exist_ok=True)
    (out / "soak.txt").write_text(text)
    print(text)
    if faults:
        print(f"the logs are in {folder}")
    else:
        shutil.rmtree(folder)
    return faults, run


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--beats", type=int, default=BEATS, help="of the publishers in a round, 50 a second")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--out", type=Path, default=OUT, help="where the report goes")
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background a shell has the first one ignored
        signal.signal(number, signal.default_int_handler)
    print(f"seed {given.seed}: {given.rounds} rounds of {given.beats} beats", flush=True)
    faults, _ = soak(given.rounds, given.beats, given.seed, given.out)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
