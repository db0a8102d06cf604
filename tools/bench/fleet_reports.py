"""What the reports of a fleet cost a daemon: processor time of reading and writing them, at least."""

from __future__ import annotations

import random
import sys
import time

from bccnd.fleet.matrix import FleetMatrix
from bccnd.fleet.report_format import HeardHost, SentRun, read_report, reporting_host
from bccnd.fleet.report_planner import ReportPlanner

INTERVAL = 10.0
ROUNDS = 10
#: local sources of each host, and bytes of a report in a datagram
SOURCES = 5
ROOM = 1300


class Fleet:
    """Hosts of which each receives all others."""

    def __init__(self, size: int) -> None:
        self.names = [f"relay{number:03d}" for number in range(size)]
        self._random = random.Random(size)
        self._planners = {name: ReportPlanner() for name in self.names}
        self._received = {
            name: {sender: self._random.randrange(10**6) for sender in self.names if sender != name}
            for name in self.names
        }
        self._sent = 0
        #: seconds of the processor for all reports of one interval
        self.writing = 0.0

    def report(self) -> list[tuple[bytes, bytes, bytes]]:
        """Return the datagrams of one interval, as they arrive: src, channel and payload."""
        self._sent += 1000
        found = []
        self.writing = 0.0
        for name in self.names:
            received = self._received[name]
            for sender in received:
                received[sender] += self._random.randrange(5, 20)
            runs = [SentRun(f"{name}/app/{number}", 10**15, 10**15 + self._sent) for number in range(SOURCES)]
            heard = [HeardHost(sender, 1_700_000_000_000, count, 0, 0, 0) for sender, count in received.items()]
            began = time.process_time()
            payloads = self._planners[name].write("1.1.0", 10_000, ("hmac", ("0" * 16,)), runs, heard, ROOM)
            self.writing += time.process_time() - began
            src = f"{name}/bccnd/1".encode()
            found += [(src, f"bccn/report/{name}".encode(), payload) for payload in payloads]
        self._random.shuffle(found)
        return found


def main(size: int) -> None:
    fleet, matrix = Fleet(size), FleetMatrix(1000, 0.0)
    now, seq, datagrams, lowest = 1.0, 0, 0, float("inf")
    for _ in range(ROUNDS):
        told = fleet.report()
        began = time.process_time()
        for src, chan, payload in told:
            seq += 1
            matrix.update(reporting_host(src, chan), src, seq, read_report(payload), now, fleet.names[0])
            now += INTERVAL / len(told)
        lowest, datagrams = min(lowest, time.process_time() - began), len(told)
    print(
        f"{size} hosts: {datagrams} datagrams in {INTERVAL:.0f} s; reading takes {1e6 * lowest / datagrams:.0f} us,"
        f" {100 * lowest / INTERVAL:.2f} % of a core; writing {100 * fleet.writing / size / INTERVAL:.3f} %"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 200)
