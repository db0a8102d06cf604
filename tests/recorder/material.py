"""What the tests of the recorder share: packets of the tap, logs made of them, and what stands in a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.config import RecorderSettings
from bccnd.core.wire import bccn1, frames
from bccnd.journal import file_names
from bccnd.journal.listing import list_files
from bccnd.journal.sessions import RecorderSession
from bccnd.net.loop import Loop
from bccnd.recorder.convert import Converted, convert
from bccnd.recorder.logfile import ALIVE, HEAD, PACKET, LogWriter
from bccnd.recorder.maintenance import Maintenance
from bccnd.recorder.recorder import Recorder
from bccnd.recorder.sessions import Head, pack_alive
from tests.support import PATIENCE, wait

#: 2026-11-21 12:00 UTC, in microseconds
NOON = 1_795_262_400 * file_names.MICROSECONDS
JOURNAL = "20261121T120000Z-00000001"


def tapped(seq: int, ts: int, chan: str = "x/y", payload: bytes = b"hello", verdict: str = "accepted") -> bytes:
    """A message of the tap; ``ts`` in microseconds."""
    raw = bccn1.build(bccn1.build_body(b"host/a/1", seq, chan.encode(), payload))
    return frames.tapped(verdict, "lan", 1, ts * 1000, "10.0.0.1:5400", raw)


def packet(seqs: Iterable[int], ts: int, step: int = 1000) -> bytes:
    """A batch: one message for each number, so many microseconds apart."""
    return frames.batch([tapped(seq, ts + step * place) for place, seq in enumerate(seqs)])


def write_log(
    path: Path,
    packets: Sequence[bytes],
    *,
    first: int = 1,
    alive: Sequence[int] = (),
    sessions: Sequence[RecorderSession] = (),
    host: str = "relay01",
) -> None:
    sessions = sessions or [RecorderSession(NOON, NOON, first=1, last=first - 1)]
    log = LogWriter(str(path))
    log.append(HEAD, Head(host, JOURNAL, first, "1", list(sessions)).pack())
    for raw in packets:
        log.append(PACKET, raw)
    for until in alive:
        log.append(ALIVE, pack_alive(until, 0))
    log.close()


def convert_log(log: Path, journal: Path) -> Converted:
    """Put a log that can be read into a journal."""
    return convert(str(log), pafs.LocalFileSystem(), str(journal))


def recorder_in(folder: Path, loop: Loop, **more: Any) -> Recorder:
    """A recorder with its journal and spool in a folder, and without a daemon; its worker is not started."""
    limits = {"spool_size": 5 << 20, "rotate": 3600.0, "rotate_size": 1 << 16}
    settings = RecorderSettings.model_validate({"journal": str(folder / "journal"), **limits, **more})
    return Recorder("absent", settings, "relay01", str(folder / "spool"), loop)


def table(journal: Path, kind: str = "obs") -> list[dict[str, Any]]:
    """All rows of a journal, in the order of their numbers."""
    rows: list[dict[str, Any]] = []
    paths = [f"{journal}/{file.name.path}" for file in list_files(pafs.LocalFileSystem(), str(journal))]
    for path in paths if kind == "obs" else sorted((journal / kind).rglob("[!.]*.parquet")):
        rows += pq.read_table(path, partitioning=None).to_pylist()
    return sorted(rows, key=lambda row: (row["journal_id"], row.get("rec_no", row.get("start_ts"))))


def names(journal: Path) -> list[str]:
    """The files of a journal."""
    return sorted(str(path.relative_to(journal)) for path in journal.rglob("*") if path.is_file())


def wait_for_child(done: Callable[[], object], purpose: str) -> None:
    """Wait for work of the process that converts logs.

    It is nice: on a busy machine it gets a small share of a processor, and loading pyarrow alone has taken more than
    `PATIENCE`.
    """
    wait(done, purpose, 2 * PATIENCE)


def end(worker: Maintenance) -> None:
    """Let a worker finish the logs that wait."""
    worker.end()
    wait_for_child(lambda: worker.done, "the worker")
