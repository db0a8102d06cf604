"""What the pipeline's cost depends on: blocks of many receivers, days of history, passes of one process.

`python -m tools.bench.spark_growth` prints a table of figures and the bounds that they break. `--only` chooses some.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from bccnd.core.formats.tap_record import seq_key
from tests.support import ROOT
from tools.bench.fleet_rows import SECOND, START, write_rows, write_session
from tools.bench.procs import family, kib_of
from tools.bench.spark import judge, run_command

DAY: Final = 86_400 * SECOND

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


def journal_id(host: int) -> str:
    return f"20260301T000000Z-{host:08x}"


def write_host(journal: str, host: int, first: int, source: Any, number: Any, at: Any) -> None:
    """Write accepted rows of a host, from the source, the number and the time of each."""
    srcs = [f"h{each:03d}/prog/{1000 + each}" for each in range(int(source.max()) + 1)]
    write_rows(journal, f"h{host:03d}", journal_id(host), first, srcs, source, seq_key(START) + number, at)


def write_sessions(journal: str, hosts: int, days: int) -> None:
    """Write a session of each host from the first day to the last."""
    for host in range(hosts):
        write_session(journal, f"h{host:03d}", journal_id(host), START, START + days * DAY - 1)


def write_day(journal: str, day: int) -> None:
    """Write the rows of all hosts on a day: a few of each source."""
    source = np.repeat(np.arange(SOURCES), MESSAGES)
    number = day * MESSAGES + np.tile(np.arange(MESSAGES), SOURCES)
    at = START + day * DAY + 6 * 3600 * SECOND + np.tile(np.arange(MESSAGES), SOURCES) * 60 * SECOND + source * SECOND
    order = np.argsort(at, kind="stable")
    for host in range(HOSTS):
        write_host(journal, host, day * len(number), source[order], number[order], at[order] + host)


def largest_worker(pid: int) -> int:
    """Return the most memory, in KiB, that one Python worker below a process has had."""
    largest = 0
    for below in family(pid)[1:]:
        with suppress(OSError):
            if "pyspark.daemon" in Path(f"/proc/{below}/cmdline").read_text():
                largest = max(largest, kib_of(below, "VmHWM"))
    return largest


def measure_worker(folder: str) -> tuple[float, float]:
    """The MB of the largest Python worker with many receivers of one source, and the seconds that all tables take."""
    journal = f"{folder}/wide"
    number = np.arange(WIDE_NUMBERS)
    for host in range(WIDE_HOSTS):
        received = number[(number * 31 + host * 17) % 97 != 0]
        at = START + 3600 * SECOND + received * 10_000 + host
        write_host(journal, host, 0, np.zeros(len(received), np.int64), received, at)
    write_sessions(journal, WIDE_HOSTS, 1)
    words = ("build", journal, "--out", f"{folder}/wide-tables")
    summary, largest = run_command(folder, *words, memory=largest_worker)
    return largest * 1024 / 1e6, float(summary["seconds"])


def measure_pass(folder: str, history: int) -> float:
    """Seconds of a pass for one new day behind so many days; the median."""
    journal, tables = f"{folder}/days{history}", f"{folder}/days{history}-tables"
    words = ("stream", journal, "--out", tables, "--once")
    for day in range(history):
        write_day(journal, day)
    write_sessions(journal, HOSTS, history)
    summary, _ = run_command(folder, *words, memory=largest_worker)
    click.echo(f"  {history} days at once: {summary['seconds']:.1f} s", err=True)
    taken: list[float] = []
    for day in range(history, history + PASSES):
        write_day(journal, day)
        write_sessions(journal, HOSTS, day + 1)
        summary, _ = run_command(folder, *words, memory=largest_worker)
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
    judge(bounds)


if __name__ == "__main__":
    main()
