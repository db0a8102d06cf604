"""What the tables of a large journal cost, and whether they are true: `python -m tests.bench.spark`."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import Final

import click

from tests.bench.fleet_rows import Truth, cells, make
from tests.bench.procs import family, kib_of
from tests.support import ROOT

#: of the journals, about; for Spark's process, and for DuckDB
ROWS: Final = (1_000_000, 10_000_000)
MEMORY: Final = "2g"
#: what ten times the rows may take at most, in times; seconds that ten million may take, on two cores
GROWTH: Final = 11.0
TEN_MILLION: Final = 60.0

#: the question of loss, for engines that read Parquet: the messages, who saw each, and what nobody saw before it
LOSS: Final = """
WITH hosts AS (SELECT host, row_number() OVER (ORDER BY host) - 1 AS bit FROM (SELECT DISTINCT host FROM obs)),
messages AS (
  SELECT src, seq_key, min(ts) AS ts, bit_or(1::BIGINT << bit) AS seen
  FROM obs JOIN hosts USING (host)
  WHERE verdict IN ('accepted', 'reordered', 'restart', 'duplicate', 'stale', 'looped', 'not_addressed')
  GROUP BY src, seq_key),
gaps AS (
  SELECT *, coalesce(seq_key - lag(seq_key) OVER (PARTITION BY src ORDER BY seq_key) - 1, 0) AS gap FROM messages),
sets AS (
  SELECT src, date_trunc('minute', ts) AS win, seen, count(*) AS n, sum(gap) AS gap FROM gaps GROUP BY ALL)
SELECT host, src, win, sum(n + gap) AS expected, sum(n) AS any_seen,
       sum(CASE WHEN (seen >> bit) & 1 = 1 THEN n ELSE 0 END) AS seen, sum(gap) AS lost_everywhere
FROM sets CROSS JOIN hosts GROUP BY host, src, win
"""


@dataclass
class Run:
    """What one size has cost."""

    rows: int
    seconds: float
    build: float
    memory: int
    duckdb: float
    wrong: int


class Memory(threading.Thread):
    """The most that a process and those that it started have held at once, in bytes."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self.most = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.5):
            self.most = max(self.most, 1024 * sum(kib_of(pid) for pid in family(self._pid)))


def _build(journal: str, tables: str, say: bool) -> tuple[float, float, int]:
    """Seconds from start to end, those of the run itself, and the most memory."""
    code = "from bccnd.cli.tool import main; main()"
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", code, "pipeline", "build", journal, "--out", tables, "--json", "--memory", MEMORY],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout
        assert running.stderr
        most = Memory(running.pid)
        most.start()
        for line in running.stderr:
            if say:
                click.echo(f"  {time.monotonic() - began:6.1f} s  {line.rstrip()}", err=True)
        summary = json.loads(running.stdout.read() or "{}")
        most.ended.set()
    if running.returncode:
        raise click.ClickException("the build has failed")
    return time.monotonic() - began, summary["seconds"], most.most


def _duckdb(journal: str, truth: Truth) -> float:
    """Seconds that DuckDB takes for the question of loss, on as many cores; its answer must be the same."""
    import duckdb

    began = time.monotonic()
    with duckdb.connect(config={"memory_limit": "2GB"}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            f"CREATE VIEW obs AS SELECT host, src, seq_key, ts, verdict FROM "
            f"read_parquet('{journal}/obs/*/*/*.parquet', hive_partitioning = false)"
        )
        found = connection.execute(LOSS).fetchall()
    took = time.monotonic() - began
    answers = {
        (host, src, int(win.timestamp()) // 60): (int(row[0]), int(row[1]), int(row[2]), int(row[3]))
        for host, src, win, *row in found
    }
    if answers != {key: (one[0], one[1], one[2], one[4]) for key, one in truth.items()}:
        raise click.ClickException("DuckDB's answer is another")
    return took


def measure(folder: str, rows: int, *, steps: bool) -> Run:
    """Make a journal of about so many rows, and its tables."""
    journal, tables = f"{folder}/journal-{rows}", f"{folder}/tables-{rows}"
    click.echo(f"making a journal of about {rows:,} rows", err=True)
    made = make(journal, rows)
    seconds, build, most = _build(journal, tables, steps)
    found = cells(tables)
    wrong = sum(found.get(key) != made.truth.get(key) for key in found.keys() | made.truth.keys())
    duckdb = _duckdb(journal, made.truth)
    return Run(made.rows, seconds, build, most, duckdb, wrong)


@click.command()
@click.option("--steps", is_flag=True, help="Say what the build is at, and when.")
def main(steps: bool) -> None:
    """What the tables of a large journal cost, and whether they are true."""
    runs = []
    with tempfile.TemporaryDirectory(prefix="bccnd-bench-") as folder:
        for count in ROWS:
            runs.append(measure(folder, count, steps=steps))
            one = runs[-1]
            click.echo(
                f"{one.rows:>12,} rows: all tables {one.build:7.1f} s ({one.seconds:.1f} s with the start of Spark), "
                f"at most {one.memory >> 20:,} MiB; wrong cells {one.wrong}; "
                f"DuckDB, the question of loss alone: {one.duckdb:.1f} s"
            )
    broken = [f"{one.wrong} cells of {one.rows:,} rows are wrong" for one in runs if one.wrong]
    for less, more in itertools.pairwise(runs):
        growth = more.build / less.build / (more.rows / less.rows)
        click.echo(f"{more.rows / less.rows:.1f} times the rows take {more.build / less.build:.1f} times as long")
        if growth > GROWTH / 10:
            broken.append("time grows faster than rows")
    if runs[-1].build > TEN_MILLION:
        broken.append(f"{runs[-1].rows:,} rows took {runs[-1].build:.1f} s")
    for each in broken:
        click.echo(f"broken: {each}", err=True)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
