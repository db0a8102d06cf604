"""Half an hour in which everything happens at once: `python -m tools.soak [--rounds N] [--beats N] [--seed N]`."""

from __future__ import annotations

import argparse
import math
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bccnd.core.formats.tap_record import seq_of
from tests.support import ROOT, kernel_drops
from tools.soak.chaos import Chaos, rests
from tools.soak.measure import Book
from tools.soak.stage import QUEUE, Stage
from tools.soak.streams import Load, Readers, Subscriber, Witness

#: half an hour on two cores
ROUNDS: Final = 130
#: beats of the publishers in a round: some ten seconds
BEATS: Final = 500
#: beats before the first round, in which nothing happens to anybody
WARM_UP: Final = 25
#: seconds for what is still on its way at the end of a round
SETTLE: Final = 30.0
#: messages of an input, which a crash may lose, or let come twice
INPUT: Final = 64
OUT: Final = ROOT / "build" / "soak"


class Soak:
    """One run."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.stage = Stage(folder)
        self.chance = random.Random(seed)
        self.book = Book()
        self.faults: list[str] = []
        #: rounds that are done, and since when
        self.rounds, self.begun = 0, time.monotonic()
        self.figures: dict[str, Any] = {"seed": seed}
        relay, near, far = (str(one.bus) for one in (self.stage.relay, self.stage.near, self.stage.far))
        self.witnesses = [
            Witness("relay01, quick", relay, "rlbcgdL", tag=b"w0"),
            Witness("relay01, in batches", relay, "rlbcgL", batch=True),
            Witness("relay01, slow", relay, "rlbcgL", slow=True),
            Witness("relay01, slow, in batches", relay, "rlbcgL", slow=True, batch=True),
            Witness("relay02", near, "rlbcg"),
            Witness("relay02, slow", near, "rlbcg", slow=True, batch=True),
            Witness("relay03", far, "rlbcg"),
        ]
        self.load = Load(self.stage.port, {"l": relay, "b": near, "c": far}, self.witnesses[0].identity, self.chance)
        self.readers = Readers(self.witnesses)
        self.subscriber = Subscriber(self.stage.tcp)
        self.chaos = Chaos(self.stage, self.chance)
        #: witnesses, publishers, gateways, the recorder
        self.at_home = {"relay01": 4 + 1 + 2 + 1, "relay02": 2 + 1, "relay03": 1 + 1 + 1}
        #: what had become lost over the link, and is no news any more
        self._reported: Counter[str] = Counter()
        self.lost_by_crashes: Counter[str] = Counter()

    def run(self, rounds: int, beats: int) -> None:
        # Nothing is missed of a source that was never heard: first everybody hears all of them.
        self.load.begin(WARM_UP)
        self.load.rest()
        self._settle(0)
        for number in range(1, rounds + 1):
            self.load.begin(beats)
            self.chaos.round(number)
            self.load.rest()
            if self.load.fault:
                self._fault(number, self.load.fault)
                break
            self._settle(number)
            self._measure(number)
            self._look_behind_the_link(number)
            self.rounds = number
            spent = time.monotonic() - self.begun
            print(f"round {number} of {rounds}: {spent:.0f} s, {len(self.faults)} faults", flush=True)

    def sum_up(self) -> None:
        """Put together what was done, in figures."""
        self.figures |= {
            "rounds": self.rounds,
            "seconds": round(time.monotonic() - self.begun),
            "messages sent": sum(self.load.sent.values()),
            "messages that witnesses received": sum(sum(one.got.values()) for one in self.witnesses),
            "losses reported to slow witnesses": sum(one.reported for one in self.witnesses),
            "lost by crashes": sum(self.lost_by_crashes.values()),
            "lost over the link on this side, while it was down": self._over_the_link(),
            "lost over the link on the other side": self._missing_there(),
            "of which the daemon there reports": self._told_there(),
            "messages to the subscriber of the broker": self.subscriber.got,
            **dict(sorted(self.chaos.done.items())),
        }

    # -- every message is accounted for

    def _over_the_link(self) -> int:
        """Messages from behind the link that nobody on this side has got."""
        return self.load.sent["c"] - max(one.got["c"] for one in self.witnesses[:4])

    def _missing_there(self) -> int:
        """What has not come over the link to the other side."""
        return self.witnesses[-1].missing(self.load.sent, "rlbg")

    def _told_there(self) -> int:
        """What the daemon there says is missing or lost: what is directed counts there as well."""
        with suppress(OSError):  # it has ended, which is said elsewhere
            return int(self.stage.far.metric("messages_missing") + self.stage.far.metric("messages_lost_total"))
        return 0

    def _unaccounted(self, one: Witness) -> int:
        """Messages that it has neither got nor been told of. What the link has lost a quick one of its host tells."""
        if one.name == "relay03":
            return one.missing(self.load.sent, "c")
        near = self.witnesses[4]
        lost = self._over_the_link() if one.name.startswith("relay01") else near.missing(self.load.sent, "c")
        return one.missing(self.load.sent) - one.reported - lost - self._reported[one.name]

    def _settle(self, number: int) -> None:
        """Everything that was sent has come, or it is missing."""
        self.readers.hurry = True
        deadline = time.monotonic() + SETTLE
        still = 0
        before = -1
        while time.monotonic() < deadline and still < 5:
            time.sleep(0.1)
            now = sum(sum(one.got.values()) + one.reported for one in self.witnesses)
            whole = not any(self._unaccounted(one) for one in self.witnesses)
            still = still + 1 if now == before and whole else 0
            before = now
        self.readers.hurry = False
        crashed = self.chaos.crashes[-1:] == [number]
        for one in self.witnesses:
            left = self._unaccounted(one)
            at_crash = one.name.startswith("relay01")
            # What a full queue has dropped is told by a number in the queue, which a crash loses too.
            most = math.inf if at_crash and one.slow else INPUT + QUEUE * at_crash
            if crashed and left and -INPUT * at_crash <= left <= most:
                self.lost_by_crashes[one.name] += left
                self._reported[one.name] += left
            elif left:
                detail = {kind: self.load.sent[kind] - one.got[kind] for kind in one.due}
                self._fault(number, f"{one.name}: {left} messages neither came nor were told to be lost ({detail})")
                self._reported[one.name] += left
            if one.ended:
                self._fault(number, f"{one.name}: it was cut off")
            if at_crash and one.crashes != len(self.chaos.crashes):
                self._fault(number, f"{one.name}: it was told of {one.crashes} of {len(self.chaos.crashes)} crashes")
            if not (crashed and at_crash and len(one.again) <= INPUT):
                one.faults += one.again
            one.again.clear()
        if crashed:  # the broker has missed what its gateway has
            self.subscriber.faults.clear()
        for name, faults in (*((one.name, one.faults) for one in self.witnesses), ("broker", self.subscriber.faults)):
            for fault in faults:
                self._fault(number, f"{name}: {fault}")
            faults.clear()

    def _look_behind_the_link(self, number: int) -> None:
        untold = self._missing_there() - self._told_there()
        # Whoever is killed uses higher numbers afterwards, so that nobody misses those that were on the way.
        if untold > self._reported["link"] and self.chaos.kills[-1:] != [number]:
            self._fault(number, f"{untold} messages did not come over the link, and the daemon there says nothing")
        self._reported["link"] = max(untold, self._reported["link"])

    def _fault(self, number: int, text: str) -> None:
        self.faults.append(f"round {number}: {text}")
        print(f"  FAULT {self.faults[-1]}", flush=True)

    # -- what everything takes

    def _measure(self, number: int) -> None:
        try:
            rests(self.stage, self.at_home)
        except AssertionError as error:
            self._fault(number, str(error))
        for name, pid in self.stage.processes().items():
            self.book.process(name, pid)
        for name, daemon in self.stage.daemons.items():
            for metric in ("sources", "clients", "subscriptions", "queue_bytes"):
                self.book.add(f"{name}: {metric}", "", daemon.metric(metric) / (1000 if metric == "queue_bytes" else 1))
            if daemon.metric("datagrams_total", verdict="internal_error"):
                self._fault(number, f"{name}: internal_error")
        self.book.add("kept in memory for the next daemon", "MB", self.stage.kept() / 1e6)
        drops = kernel_drops(self.stage.udp_socket)
        if drops > self._reported["kernel"]:
            self._fault(number, f"the kernel had no room for {drops - self._reported['kernel']} datagrams")
            self._reported["kernel"] = drops

    # -- the end

    def close(self) -> None:
        self.load.close()
        self.readers.close()
        self.subscriber.close()
        self.stage.close()

    def judge(self) -> list[str]:
        """All that is wrong."""
        return [*self.faults, *self.book.growing(), *self.stage.bugs(), *self._journal()]

    def _journal(self) -> list[str]:
        """What the recorder has written: no record twice, and nothing set aside as bad."""
        from tests.recorder.material import table

        journal = self.stage.folder / "journal"
        rows = [row for row in table(journal) if row["src"] == "relay09/x/1" and row["verdict"] == "accepted"]
        seqs = [seq_of(row["seq_key"]) for row in rows]
        self.figures["messages from the segment, recorded"] = f"{len(set(seqs))} of {self.load.sent['r']}"
        twice = len(seqs) - len(set(seqs))
        faults = [f"{twice} records are there twice"] if twice > INPUT * len(self.chaos.crashes) else []
        bad = [str(path) for path in journal.rglob("*.bad*")]
        return faults + [f"set aside: {path}" for path in bad]


def soak(rounds: int, beats: int, seed: int, out: Path) -> tuple[list[str], Soak]:
    """Run it, and write the report to ``out``; the faults, and the run."""
    folder = Path(tempfile.mkdtemp(prefix="bccnd-soak-"))
    run = Soak(folder, seed)
    try:
        run.run(rounds, beats)
    except (AssertionError, OSError) as error:
        run.faults.append(f"it came to a stop: {error}")
    except KeyboardInterrupt:
        print("ended by Ctrl-C: what follows is about the rounds that were done")
    finally:
        run.sum_up()
        run.close()
    faults = run.judge()
    text = run.book.report(run.figures, faults)
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
