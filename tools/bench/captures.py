"""How fast captures become a journal, and in how much memory: ``python -m tools.bench.captures [DATAGRAMS]``."""

from __future__ import annotations

import resource
import struct
import sys
import tempfile
import time
from pathlib import Path

from bccnd.journal.capture_import import CaptureSettings, ingest
from tests.core.captures import ether, ipv4, pcap, udp
from tests.e2e.harness import datagram

#: 2023-11-14 22:13:20 UTC, in microseconds
T = 1_700_000_000_000_000
#: microseconds between datagrams
STEP = 50
SOURCES = 50


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pcap"
        with path.open("wb") as file:
            file.write(pcap([]))
            for number in range(count):
                source, seq = number % SOURCES, number // SOURCES + 1
                body = datagram(f"host{source}/p/{source}", seq, f"cardsys/relay/{number % 20}", b"x" * 120)
                packet = ether(ipv4(udp(body)))
                seconds, rest = divmod(T + number * STEP, 1_000_000)
                file.write(struct.pack("<IIII", seconds, rest, len(packet), len(packet)) + packet)
        begin = time.monotonic()
        done = ingest([str(path)], f"{folder}/journal", CaptureSettings("relay02"))
        seconds_taken = time.monotonic() - begin
        assert done.rows == count
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{count} datagrams in {seconds_taken:.1f} s: {count / seconds_taken:,.0f} a second, {most} MB at most")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300_000)
