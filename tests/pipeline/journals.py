"""Journals made by hand, for tests of whoever reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.fs as pafs

import bccnd
from bccnd.core.formats.tap_record import Observation, observe
from bccnd.journal import file_names, files
from tests.core.captures import Frame, ether, ipv4, udp
from tests.e2e.harness import datagram

#: 2023-11-14 22:13:20 UTC, in nanoseconds
T = 1_700_000_000 * 10**9


def row(
    seq: int, *, src: str = "relay01/a/1", chan: str = "a/b", verdict: str = "accepted", at: float | None = None
) -> Observation:
    """A datagram that came so many seconds after T, one for each seq if nothing is said."""
    stamp = T + round((seq if at is None else at) * 1e9)
    return observe(verdict, "lan", 1, stamp, "10.0.0.1:5400", datagram(src, seq, chan, f"payload {seq}"))


def rows(first: int, count: int, **more: str) -> list[Observation]:
    return [row(number, **more) for number in range(first, first + count)]  # type: ignore[arg-type]


def frame(at: float, data: bytes) -> Frame:
    """A captured datagram that came so many seconds after T."""
    return Frame(T + round(at * 1e9), ether(ipv4(udp(data))))


def heard(listener: bccnd.Connection) -> list[tuple[str, bytes]]:
    """What a client has been sent by now."""
    with bccnd.connect(listener.path) as last:
        last.publish("the/end")
    published = []
    for message in listener:
        if message.chan == "the/end":
            break
        published.append((message.chan, message.payload))
    return published


def put(root: Path, host: str, journal: str, first: int, observed: Sequence[Observation]) -> Path:
    """A finished file of a journal."""
    path = file_names.ObsFile(host, file_names.day_of(observed[0].ts), journal, first).path
    files.write_records(pafs.LocalFileSystem(), str(root), path, files.obs_table(host, journal, first, observed))
    return root / path
