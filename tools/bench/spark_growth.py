"""What the pipeline's cost depends on: blocks of many receivers, days of history, passes of one process.

`python -m tools.bench.spark_growth` prints a table of figures and the bounds that they break. `--only` chooses some.
"""

from __future__ import annotations

import datetime
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa

from bccnd.core.formats.tap_record import seq_key
from bccnd.journal import file_names, files, schema
from tests.support import ROOT
from tools.bench.procs import Highest, family, kib_of
from tools.bench.spark import BCCN, command_environment

SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND
#: 2026-03-01, at midnight
START: Final = int(datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC).timestamp()) * SECOND

#: receivers of one source, and the numbers that it sends; the largest Python worker may take so many MB
WIDE_HOSTS: Final = 100
WIDE_NUMBERS: Final = 65_000
WORKER_MB: Final = 500.0
#: receivers, sources, days of a short and a long history; a pass after the long one may take so many times what it
#: takes after the short one
HOSTS: Final = 200
SOURCES: Final = 40
SHORT: Final = 4
LONG: Final = 40
#: messages of a source and day
MESSAGES: Final = 3
GROWTH: Final = 1.2
#: passes that are compared, each for one new day
PASSES: Final = 3
#: passes of one process; its heap may grow by so much from the fifth to the last one
HEAP_PASSES: Final = 20
HEAP_GROWTH: Final = 1.1
#: times that Java collects garbage before the heap counts as live
COLLECTIONS: Final = 5


def write_rows(journal: str, host: int, day: int, first: int, source: Any, number: Any, at: Any) -> None:
    """Write the rows of a host and day, from the source, the number and the time of each; all are accepted."""
    count = len(number)
    name = f"h{host:03d}"
    names = pa.array([f"h{each:03d}/prog/{1000 + each}" for each in range(int(source.max()) + 1)])
    always = {
        "host": name,
        "journal_id": f"20260301T000000Z-{host:08x}",
        "segment": "lan",
        "peer_ip": "10.0.0.1",
        "verdict": "accepted",
        "magic": "BCCN1",
        "algo": "hmac",
        "chan": "data",
        "form": "plain",
    }
    columns = {
        **{column: pa.repeat(value, count) for column, value in always.items()},
        "rec_no": pa.array(np.arange(first, first + count)),
        "ts": pa.array(at).cast(pa.timestamp("us", "UTC")),
        "peer_port": pa.array((40_000 + source).astype(np.int32)),
        "src": names.take(pa.array(source)),
        "seq_key": pa.array(seq_key(START) + number),
        "epoch": pa.array(np.ones(count, np.int32)),
        "len": pa.array(np.full(count, 120, np.int32)),
        "payload": pa.nulls(count, pa.binary()),
    }
    filesystem, root = files.open_root(journal)
    place = file_names.ObsFile(name, file_names.day_of(START + day * DAY), always["journal_id"], first)
    files.write(filesystem, root, place.path, pa.table(columns, schema=schema.OBS))


def write_sessions(journal: str, hosts: int, days: int) -> None:
    """Write a session of each host from the first day to the last."""
    filesystem, root = files.open_root(journal)
    for host in range(hosts):
        name, journal_id = f"h{host:03d}", f"20260301T000000Z-{host:08x}"
        row = {"host": name, "journal_id": journal_id, "start_ts": START, "end_ts": START + days * DAY - 1}
        row |= {"version": "bench", "socket_drops": 0, "tap_gaps": 0}
        table = pa.Table.from_pylist([row], schema=schema.SESSIONS)
        files.write(filesystem, root, file_names.sessions_path(name, journal_id), table)


def write_day(journal: str, day: int) -> None:
    """Write the rows of all hosts on a day: a few of each source."""
    source = np.repeat(np.arange(SOURCES), MESSAGES)
    number = day * MESSAGES + np.tile(np.arange(MESSAGES), SOURCES)
    at = START + day * DAY + 6 * 3600 * SECOND + np.tile(np.arange(MESSAGES), SOURCES) * 60 * SECOND + source * SECOND
    order = np.argsort(at, kind="stable")
    for host in range(HOSTS):
        columns = source[order], number[order], at[order] + host
        write_rows(journal, host, day, day * len(number), *columns)


def largest_worker(pid: int) -> int:
    """Return the most memory, in KiB, that one Python worker below a process has had."""
    largest = 0
    for below in family(pid)[1:]:
        with suppress(OSError):
            if "pyspark.daemon" in Path(f"/proc/{below}/cmdline").read_text():
                largest = max(largest, kib_of(below, "VmHWM"))
    return largest


def run_command(folder: str, *words: str) -> tuple[Mapping[str, Any], float]:
    """Run a command of the pipeline; return its summary, and the MB of its largest Python worker."""
    environment = command_environment(folder)
    command = [*BCCN, "pipeline", *words, "--json"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        watch = Highest(lambda: largest_worker(running.pid), 0.2)
        watch.start()
        summary = json.loads(running.stdout.read().strip().splitlines()[-1])
        largest = watch.stop()
    if running.returncode:
        raise click.ClickException("the run has failed")
    return summary, largest * 1024 / 1e6


def measure_worker(folder: str) -> tuple[float, float]:
    """The MB of the largest Python worker with many receivers of one source, and the seconds that all tables take."""
    journal = f"{folder}/wide"
    number = np.arange(WIDE_NUMBERS)
    for host in range(WIDE_HOSTS):
        received = number[(number * 31 + host * 17) % 97 != 0]
        at = START + 3600 * SECOND + received * 10_000 + host
        write_rows(journal, host, 0, 0, np.zeros(len(received), np.int64), received, at)
    write_sessions(journal, WIDE_HOSTS, 1)
    summary, largest = run_command(folder, "build", journal, "--out", f"{folder}/wide-tables")
    return largest, float(summary["seconds"])


def measure_pass(folder: str, history: int) -> float:
    """Seconds of a pass for one new day behind so many days; the median."""
    journal, tables = f"{folder}/days{history}", f"{folder}/days{history}-tables"
    words = ("stream", journal, "--out", tables, "--once")
    for day in range(history):
        write_day(journal, day)
    write_sessions(journal, HOSTS, history)
    summary, _ = run_command(folder, *words)
    click.echo(f"  {history} days at once: {summary['seconds']:.1f} s", err=True)
    taken: list[float] = []
    for day in range(history, history + PASSES):
        write_day(journal, day)
        write_sessions(journal, HOSTS, day + 1)
        summary, _ = run_command(folder, *words)
        click.echo(f"  day {day + 1}: {summary['seconds']:.1f} s, {len(summary['days'])} days", err=True)
        taken.append(float(summary["seconds"]))
    return statistics.median(taken)


def measure_heap(folder: str) -> list[float]:
    """The MB of live objects on the driver's heap after each of many passes of one process, one for each new day."""
    from bccnd.pipeline.driver import spark_session
    from bccnd.pipeline.driver.incremental import once

    os.environ["PYTHONPATH"] = str(ROOT)
    journal, tables = f"{folder}/heap", f"{folder}/heap-tables"
    used = []
    spark = spark_session.start(memory="2g")
    machine: Any = spark.sparkContext._jvm
    assert machine is not None
    runtime = machine.java.lang.Runtime.getRuntime()
    for day in range(HEAP_PASSES):
        write_day(journal, day)
        write_sessions(journal, HOSTS, day + 1)
        began = time.monotonic()
        once(spark, journal, tables)
        taken = time.monotonic() - began
        # Objects of Java live as long as Python refers to them, and some until Spark has heard that they are free.
        gc.collect()
        live = []
        for _ in range(COLLECTIONS):
            machine.java.lang.System.gc()
            time.sleep(0.5)
            live.append((runtime.totalMemory() - runtime.freeMemory()) / 1e6)
        used.append(min(live))
        own = kib_of(os.getpid()) * 1024 / 1e6
        click.echo(f"  pass {day + 1}: {taken:.1f} s, heap {used[-1]:.1f} MB, Python {own:.0f} MB", err=True)
    spark_session.stop()
    return used


@click.command()
@click.option("--only", type=click.Choice(["worker", "history", "heap"]), multiple=True, help="Measure only this.")
def main(only: tuple[str, ...]) -> None:
    """What the pipeline's cost depends on: blocks of many receivers, days of history, passes of one process."""
    bounds: list[tuple[str, float, float]] = []

    def worker(folder: str) -> None:
        largest, seconds = measure_worker(folder)
        click.echo(f"{WIDE_HOSTS} hosts, {WIDE_NUMBERS:,} numbers: {seconds:.1f} s")
        bounds.append(("largest Python worker, MB", largest, WORKER_MB))

    def history(folder: str) -> None:
        long, short = measure_pass(folder, LONG), measure_pass(folder, SHORT)
        click.echo(f"a pass for a new day: {short:.1f} s behind {SHORT} days, {long:.1f} s behind {LONG}")
        bounds.append((f"pass behind {LONG} days / {SHORT} days", long / short, GROWTH))

    def heap(folder: str) -> None:
        used = measure_heap(folder)
        bounds.append((f"heap after {HEAP_PASSES} passes / after 5", used[-1] / used[4], HEAP_GROWTH))

    steps: dict[str, Callable[[str], None]] = {"worker": worker, "history": history, "heap": heap}
    with tempfile.TemporaryDirectory(prefix="bccnd-bench-") as folder:
        for name, step in steps.items():
            if not only or name in only:
                step(folder)
    click.echo(f"\n{'figure':<36}{'value':>9}{'bound':>9}")
    for name, value, bound in bounds:
        click.echo(f"{name:<36}{value:>9.2f}{bound:>9.2f}{'  broken' if value > bound else ''}")
    sys.exit(any(value > bound for _, value, bound in bounds))


if __name__ == "__main__":
    main()
