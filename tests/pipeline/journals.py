"""Journals made by hand, for tests of whoever reads them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

import bccnd
from bccnd.core.formats.tap_record import Observation, observe
from bccnd.journal import file_names, files
from bccnd.journal.listing import current, list_files
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


def frame(at: float, data: bytes, source: str = "10.0.0.1") -> Frame:
    """A captured datagram that came so many seconds after T."""
    return Frame(T + round(at * 1e9), ether(ipv4(udp(data), source)))


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


def merge(root: Path, host: str, *, remove: bool = True) -> None:
    """Merge the files of each journal and day of a host, as recorders of earlier versions did; ``remove`` those that
    the merged files are made of, as they did ten minutes later."""
    filesystem = pafs.LocalFileSystem()
    listed = current(list_files(filesystem, str(root), hosts=[host]))
    for _, adjacent in groupby(listed, key=lambda file: (file.name.day, file.name.journal_id)):
        parts = [file.name for file in adjacent]
        table = pa.concat_tables([pq.read_table(root / part.path, partitioning=None) for part in parts])
        numbers = table["rec_no"].to_pylist()
        if len(parts) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
            files.write(filesystem, str(root), parts[0]._replace(last=numbers[-1]).path, table)
    left = {file.name.path for file in current(list_files(filesystem, str(root), hosts=[host]))}
    for file in list_files(filesystem, str(root), hosts=[host]) if remove else ():
        if file.name.path not in left:
            (root / file.name.path).unlink()


def put(root: Path, host: str, journal: str, first: int, observed: Sequence[Observation]) -> Path:
    """A finished file of a journal."""
    path = file_names.ObsFile(host, file_names.day_of(observed[0].ts), journal, first).path
    files.write(pafs.LocalFileSystem(), str(root), path, files.obs_table(host, journal, first, observed))
    return root / path
