"""`python -m tools.bench.tables`: what the tables of a large journal and the report of a small one take.

The journal has known losses; their sum in the tables must be right. With `--only` some cases are measured.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Final, NamedTuple

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from bccnd.core.formats.tap_record import seq_key
from bccnd.journal import file_names, files, schema
from examples.fleet_model import Fleet, Loss, Source
from examples.simulation import write
from tests.support import ROOT

#: about so many rows
SMALL, LARGE = 3_000_000, 11_000_000
#: seconds that a report of a journal of about 1,000 rows may take on its first run, and after which a command hangs
REPORT, LONGEST = 2.0, 7200
EMBEDDED: Final = ("--embedded",)
SPARK: Final = ("--master", "local[2]")
BCCN: Final = [sys.executable, "-c", "import sys; sys.argv[0] = 'bccn'; from bccnd.cli.main import main; main()"]

SECOND: Final = 1_000_000
#: 2026-03-01, at noon: journals of many chunks go over midnight
START: Final = int(datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC).timestamp()) * SECOND
HOSTS: Final = 20
SOURCES: Final = 100
#: microseconds of one file of a host, and messages of each source in it
CHUNK: Final = 360 * SECOND
MESSAGES: Final = 500
#: each host loses every so many messages; every so many sources send everything twice
LOST: Final = 97
TWICE: Final = 10


class Case(NamedTuple):
    """A journal, as a recorder writes it (``is_sorted``) or as others may, the driver, and the seconds it may take."""

    name: str
    rows: int
    driver: tuple[str, ...]
    bound: float
    is_sorted: bool = True


CASES: Final = (
    Case("small embedded", SMALL, EMBEDDED, 4.0),
    Case("small on Spark", SMALL, SPARK, 18.0),
    Case("large embedded", LARGE, EMBEDDED, 12.0),
    Case("large on Spark", LARGE, SPARK, 28.0),
    Case("large embedded, not sorted", LARGE, EMBEDDED, 16.0, is_sorted=False),
    Case("large on Spark, not sorted", LARGE, SPARK, 40.0, is_sorted=False),
)


def make(journal: str, rows: int, is_sorted: bool) -> int:
    """Write a journal of about so many rows; return how many messages its hosts have lost."""
    chunks = max(1, round(rows / (MESSAGES * SOURCES * HOSTS)))
    source, place = np.repeat(np.arange(SOURCES), MESSAGES), np.tile(np.arange(MESSAGES), SOURCES)
    filesystem, root = files.open_root(journal)
    missing = 0
    for host in range(HOSTS):
        first = 0
        name = f"20260301T120000Z-{host:08x}"
        for chunk in range(chunks):
            number = chunk * MESSAGES + place
            # A loss is seen by the messages around it.
            lost = ((number * 31 + host * 17 + source * 7) % LOST == 0) & (place > 0) & (place < MESSAGES - 1)
            missing += int(lost.sum())
            table = received(name, host, first, source[~lost], number[~lost])
            first += table.num_rows
            days = pc.strftime(table["ts"], format="%Y-%m-%d")
            for day in pc.unique(days).to_pylist():
                chosen = table.filter(pc.equal(days, day))
                path = file_names.ObsFile(f"h{host:02d}", day, name, chosen["rec_no"][0].as_py()).path
                if is_sorted:
                    files.write_records(filesystem, root, path, schema.conform(chosen))
                else:
                    files.write(filesystem, root, path, chosen)
        listening = {"start_ts": START - SECOND, "end_ts": START + chunks * CHUNK + SECOND}
        row = {"host": f"h{host:02d}", "journal_id": name, "version": "bench", "socket_drops": 0, "tap_gaps": 0}
        sessions = pa.Table.from_pylist([row | listening], schema=schema.SESSIONS)
        files.write(filesystem, root, file_names.sessions_path(f"h{host:02d}", name), sessions)
    return missing


def received(name: str, host: int, first: int, source: Any, number: Any) -> pa.Table:
    """Return the records of what a host has received in a chunk."""
    twice = source % TWICE == 0
    copy = np.arange(len(source) + twice.sum()) >= len(source)
    source, number = np.concatenate([source, source[twice]]), np.concatenate([number, number[twice]])
    at = START + number * (CHUNK // MESSAGES) + source * 100 + host + copy * 2000
    order = np.argsort(at, kind="stable")
    source, number, at, copy = source[order], number[order], at[order], copy[order]
    verdicts = pa.array(["accepted", "duplicate", "looped"])
    srcs = pa.array([f"h{one % HOSTS:02d}/prog{one // HOSTS}/{1000 + one}" for one in range(SOURCES)])
    own = source % HOSTS == host
    columns = {
        "host": f"h{host:02d}",
        "journal_id": name,
        "rec_no": pa.array(np.arange(first, first + len(at))),
        "ts": pa.array(at).cast(pa.timestamp("us", "UTC")),
        "segment": "lan",
        "peer_ip": "10.0.0.1",
        "peer_port": pa.array(40_000 + source),
        "verdict": verdicts.take(pa.array(np.where(own, 2, copy.astype(int)))),
        "magic": "BCCN1",
        "algo": "hmac",
        "src": srcs.take(pa.array(source)),
        "seq_key": pa.array(seq_key(START) + number),
        "epoch": pa.array(np.where(own, 0, 1)),
        "chan": "data",
        "form": "plain",
        "len": 120,
        "payload": pa.nulls(len(at), pa.binary()),
    }
    made = {key: value if isinstance(value, pa.Array) else pa.repeat(value, len(at)) for key, value in columns.items()}
    return pa.table(made, schema=pa.schema([field for field in schema.OBS if field.name != schema.SHARE]))


def run(*words: str) -> float:
    """Run a command of `bccn`; return the seconds that it takes."""
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*BCCN, *words], cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=LONGEST)
    return time.monotonic() - began


def measure(folder: str, case: Case) -> list[tuple[str, float, float]]:
    """Make the tables of a case; return its figures and their bounds."""
    journal, tables = f"{folder}/journal", f"{folder}/tables"
    missing = make(journal, case.rows, case.is_sorted)
    seconds = run("pipeline", "build", journal, "--out", tables, *case.driver)
    found = pc.sum(DeltaTable(f"{tables}/link_loss").to_pyarrow_table(columns=["lost_here"])["lost_here"]).as_py()
    return [(f"{case.name}: seconds", seconds, case.bound), (f"{case.name}: wrong", abs(found - missing), 0.0)]


def report(folder: str) -> float:
    """Return the seconds of the first `bccn report` of a small journal."""
    source = Source("one/meter", "one", rate=25.0, channels=("meter",))
    write(Fleet(("one", "two"), (source,), duration=20.0, losses=(Loss("two", probability=0.1),)), f"{folder}/demo")
    return run("report", f"{folder}/demo", "--out", f"{folder}/page")


@click.command(help=__doc__)
@click.option("--only", multiple=True, metavar="WORD", help="Measure only cases with this in their name, or `report`.")
@click.option("--rows", type=int, help="Make journals of so many rows instead.")
def main(only: tuple[str, ...], rows: int | None) -> None:
    bounds: list[tuple[str, float, float]] = []
    with tempfile.TemporaryDirectory(prefix="bccnd-bench-") as folder:
        for number, case in enumerate(CASES):
            if not only or any(word in case.name for word in only):
                bounds += measure(f"{folder}/{number}", case._replace(rows=rows or case.rows))
        if not only or "report" in only:
            bounds.append(("report of a small journal: seconds", report(folder), REPORT))
    for name, value, bound in bounds:
        click.echo(f"{name:<44}{value:>9.2f}{bound:>9.2f}")
    sys.exit(any(value > bound for _, value, bound in bounds))


if __name__ == "__main__":
    main()
