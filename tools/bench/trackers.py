"""What 100,000 senders cost: the memory of their trackers, and the longest that anybody waits for them."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable

from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import Liveness
from tests.rules import dedup_rules, heartbeat_rules
from tools.bench.procs import kib_of

START = 1_700_000_000_000_000


class Calls(list[int]):
    """The durations of one kind of call. The clock is that of the processor: what others do here is not our pause."""

    def time(self, call: Callable[[], object]) -> None:
        start = time.thread_time_ns()
        call()
        self.append(time.thread_time_ns() - start)


def main(count: int) -> None:
    gc.disable()  # as the daemon does
    rules = dedup_rules(max_sources=count)
    before = kib_of(os.getpid())
    sources = TrackerTable(rules)
    liveness = Liveness(sources, heartbeat_rules(interval=5.0, dead_after=3), 0.0)

    def receive(number: int, seq: int, now: float) -> None:
        src = b"relay%02d.example/cardsys-relay/%d" % (number % 50, number)
        sources.judge(src, seq, now)
        liveness.on_heartbeat(src, now)

    def sweep(calls: Calls, now: float) -> None:
        def both() -> None:
            sources.sweep(now)
            more.append(liveness.sweep(now))

        more = [True]
        while more[-1]:
            calls.time(both)

    first, again, evict, quiet, die = Calls(), Calls(), Calls(), Calls(), Calls()
    for number in range(count):
        first.time(lambda: receive(number, START + number, number * 5.0 / count))  # noqa: B023
    for number in range(count):
        seq = START + number + 1 + 3 * (number % 10 == 0)
        again.time(lambda: receive(number, seq, 5.0 + number * 5.0 / count))  # noqa: B023
    taken = 1024 * (kib_of(os.getpid()) - before)
    for quarter in range(20):
        sweep(quiet, 5.0 + quarter / 4)
    print(f"{count:,} trackers take {taken / 1e6:.1f} MB resident, {taken / count:.0f} bytes each")
    tick = 10.0
    for number in range(count):
        now = 10.0 + number * 10.0 / count
        evict.time(lambda: receive(count + number, START, now))  # noqa: B023
        if now > tick + 0.25:
            tick = now
            sweep(quiet, tick)
    while len(sources):
        tick += 0.25
        sweep(die, tick)
    for name, calls in (
        ("a sender heard for the first time", first),
        ("heard again, one in ten with a gap", again),
        ("a sweep meanwhile", quiet),
        ("one more than there is room for", evict),
        ("a sweep in which all die", die),
    ):
        longest, mean = max(calls) / 1000, sum(calls) / 1000 / len(calls)
        print(f"{name:<42} longest {longest:9.1f} us, mean {mean:7.2f} us ({len(calls):,} calls)")
    print(
        f"evicted {sources.counted['evicted']:,}, dead {liveness.counted['deaths']:,}, "
        f"unwatched {liveness.counted['unwatched']:,}, left {len(sources)}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
