"""What the tables of a large journal and the report of a small one cost, and whether they are true.

`python -m tools.bench.spark` prints a table of figures and the bounds that they break; `--huge` adds 100 million rows.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from examples.fleet_model import Fleet, Loss, Source
from examples.simulation import write
from tests.support import ROOT
from tools.bench.fleet_rows import Truth, cells, make
from tools.bench.procs import Highest, family, kib_of

#: of the journals, about; for Spark's process, and for DuckDB
SMALL: Final = 1_000_000
LARGE: Final = 10_000_000
HUGE: Final = 100_000_000
MEMORY: Final = "2g"
#: seconds that all tables may take with Spark's start, or so many times what DuckDB takes for the question of loss of
#: the large journal: what is more
SECONDS: Final = {SMALL: (15.0, 3.25), LARGE: (30.0, 6.5)}
#: times that the large journal may take compared with the small one, the mixed one and the huge one with the large one
GROWTH: Final = 4.0
MIXED: Final = 1.5
HUGE_GROWTH: Final = 11.0
#: times that `bccn report` of a small journal may take compared with a bare program that uses Spark; pairs of runs
REPORT: Final = 0.9
PAIRS: Final = 3
#: seconds to wait for the archive that the first run has made
ARCHIVE: Final = 600.0
#: seconds after which a command hangs
LONGEST: Final = 7200

BCCN: Final = [sys.executable, "-c", "import sys; sys.argv[0] = 'bccn'; from bccnd.cli.main import main; main()"]

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

#: what the report is compared with: Spark started, a small file written, read, and eleven aggregates of it written
BARE: Final = """
import sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.master("local[*]").getOrCreate()
rows = spark.range(800).select("id", (F.col("id") % 7).alias("host"), (F.col("id") % 3).alias("src"))
rows.write.parquet(f"{sys.argv[1]}/rows")
rows = spark.read.parquet(f"{sys.argv[1]}/rows")
for number in range(11):
    part = (F.col("id") % (number + 2)).alias("part")
    found = rows.groupBy("host", part).agg(F.count("*"), F.sum("id"), F.max("src"))
    found.write.parquet(f"{sys.argv[1]}/aggregate{number}")
spark.stop()
"""


@dataclass
class Run:
    """What one journal has cost: ``seconds`` with Spark's start, ``build`` without."""

    name: str
    rows: int
    seconds: float
    build: float
    memory: int
    duckdb: float
    wrong: int


def command_environment(folder: str) -> dict[str, str]:
    """Of commands, which find nothing in the user's cache."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": f"{folder}/cache"}


def run_command(
    folder: str, *words: str, memory: Callable[[int], int], say: bool = False
) -> tuple[Mapping[str, Any], int]:
    """Run a command of the pipeline; return its summary, and the most ``memory`` of its process."""
    began = time.monotonic()
    with subprocess.Popen(
        [*BCCN, "pipeline", *words, "--json"],
        cwd=ROOT,
        env=command_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout
        assert running.stderr
        late = threading.Timer(LONGEST, running.kill)
        late.daemon = True
        late.start()
        held = Highest(lambda: memory(running.pid), 0.2)
        held.start()
        for line in running.stderr:
            if say:
                click.echo(f"  {time.monotonic() - began:6.1f} s  {line.rstrip()}", err=True)
        output = running.stdout.read()
        most = held.stop()
        running.wait(LONGEST)
        late.cancel()
    if running.returncode:
        raise click.ClickException(f"the run has failed, or was killed after {LONGEST} s")
    return json.loads(output.strip().splitlines()[-1]), most


def judge(bounds: Sequence[tuple[str, float, float]]) -> NoReturn:
    """Print figures beside their bounds, and exit; with status 1 if one is broken."""
    click.echo(f"\n{'figure':<36}{'value':>9}{'bound':>9}")
    for name, value, bound in bounds:
        click.echo(f"{name:<36}{value:>9.2f}{bound:>9.2f}{'  broken' if value > bound else ''}")
    sys.exit(any(value > bound for _, value, bound in bounds))


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


def measure(folder: str, name: str, rows: int, *, mixed: bool = False) -> Run:
    """Make a journal of about so many rows, and its tables; what DuckDB takes only of a large plain one."""
    journal, tables = f"{folder}/{name}", f"{folder}/{name}-tables"
    click.echo(f"{name}: making a journal of about {rows:,} rows", err=True)
    made = make(journal, rows, mixed=mixed)
    began = time.monotonic()
    words = ("build", journal, "--out", tables, "--memory", MEMORY)
    summary, most = run_command(folder, *words, memory=lambda pid: sum(map(kib_of, family(pid))), say=True)
    seconds = time.monotonic() - began
    found = cells(tables)
    wrong = sum(found.get(key) != made.truth.get(key) for key in found.keys() | made.truth.keys())
    duckdb = _duckdb(journal, made.truth) if rows == LARGE and not mixed else 0.0
    return Run(name, sum(made.of_journal.values()), seconds, summary["seconds"], most << 10, duckdb, wrong)


def write_small_journal(path: str) -> None:
    """Write a journal as small as the demo's."""
    source = Source("one/meter", "one", rate=20.0, channels=("meter",))
    write(Fleet(("one", "two"), (source,), duration=20.0, losses=(Loss("two", probability=0.1),)), path)


def wait_for_archive(folder: str) -> None:
    """Wait until the first run's archive of Java's classes is made."""
    until = time.monotonic() + ARCHIVE
    while any(Path(folder, "cache/bccnd").glob("*.classes")) and time.monotonic() < until:
        time.sleep(0.5)


def report(folder: str) -> tuple[float, float]:
    """Seconds of `bccn report` of a journal as small as the demo's, not on the first run, and of the bare program; each
    the median of runs that alternate."""
    write_small_journal(f"{folder}/demo")
    taken: list[tuple[float, float]] = []
    for number in range(PAIRS + 1):
        out = f"{folder}/page{number}"
        both = [*BCCN, "report", f"{folder}/demo", "--out", out], [sys.executable, "-c", BARE, f"{folder}/bare{number}"]
        began = [time.monotonic()]
        for command in both:
            subprocess.run(
                command, cwd=ROOT, env=command_environment(folder), check=True, capture_output=True, timeout=LONGEST
            )
            began.append(time.monotonic())
        if number:
            taken.append((began[1] - began[0], began[2] - began[1]))
        if not number:
            wait_for_archive(folder)
    return statistics.median(one for one, _ in taken), statistics.median(other for _, other in taken)


@click.command()
@click.option("--huge", is_flag=True, help="Also 100 million rows (half an hour).")
def main(huge: bool) -> None:
    """What the tables of a large journal and the report of a small one cost, and whether they are true."""
    with tempfile.TemporaryDirectory(prefix="bccnd-bench-") as folder:
        ours, bare = report(folder)
        small = measure(folder, "small", SMALL)
        large = measure(folder, "large", LARGE)
        mixed = measure(folder, "mixed", LARGE, mixed=True)
        runs = [small, large, mixed]
        if huge:
            runs.append(measure(folder, "huge", HUGE))
    bounds = [(f"{one.name}: wrong cells", float(one.wrong), 0.0) for one in runs]
    for run, (seconds, times) in zip((small, large), SECONDS.values(), strict=True):
        bounds.append((f"{run.name}: seconds with Spark's start", run.seconds, max(seconds, times * large.duckdb)))
    bounds.append(("large / small", large.seconds / small.seconds, GROWTH))
    bounds.append(("mixed / large", mixed.seconds / large.seconds, MIXED))
    if huge:
        bounds.append(("huge / large", runs[-1].seconds / large.seconds, HUGE_GROWTH))
    bounds.append(("report / bare program", ours / bare, REPORT))
    click.echo(f"{'journal':<8}{'rows':>13}{'seconds':>9}{'of which tables':>17}{'memory, MiB':>13}")
    for run in runs:
        click.echo(f"{run.name:<8}{run.rows:>13,}{run.seconds:>9.1f}{run.build:>17.1f}{run.memory >> 20:>13,}")
    click.echo(f"DuckDB, loss of the large journal alone: {large.duckdb:.1f} s")
    click.echo(f"bccn report of a journal of 800 rows: {ours:.1f} s; a bare program with Spark: {bare:.1f} s")
    judge(bounds)


if __name__ == "__main__":
    main()
