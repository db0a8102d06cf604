"""What the pipeline's cost depends on: receivers of one source, and days of history.

`python -m tools.bench.tables_growth` prints a table of figures and the bounds that they break. `--only` chooses some.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from typing import Any, Final

import click
import numpy as np

from bccnd.core.formats.tap_record import seq_key
from tools.bench.fleet_rows import SECOND, START, write_rows, write_session
from tools.bench.procs import kib_of
from tools.bench.tables import EMBEDDED, judge, run_command

DAY: Final = 86_400 * SECOND

#: receivers of one source, and the numbers that it sends; the process may take so many MB
WIDE_HOSTS: Final = 200
WIDE_NUMBERS: Final = 65_000
PROCESS_MB: Final = 500.0
#: receivers, sources, days of a short history and of long ones; a pass after a long one may take so many times what it
#: takes after the short one
HOSTS: Final = 200
SOURCES: Final = 40
SHORT: Final = 4
LONG: Final = {40: 1.1, 400: 1.2}
#: messages of a source and day
MESSAGES: Final = 3
#: passes that are compared, each for one new day
PASSES: Final = 3


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


def measure_wide(folder: str) -> tuple[float, float]:
    """The MB of the process with many receivers of one source, and the seconds that all tables take."""
    journal = f"{folder}/wide"
    number = np.arange(WIDE_NUMBERS)
    for host in range(WIDE_HOSTS):
        received = number[(number * 31 + host * 17) % 97 != 0]
        at = START + 3600 * SECOND + received * 10_000 + host
        write_host(journal, host, 0, np.zeros(len(received), np.int64), received, at)
    write_sessions(journal, WIDE_HOSTS, 1)
    words = ("build", journal, "--out", f"{folder}/wide-tables", *EMBEDDED, "--memory", "150m")
    summary, largest = run_command(*words, memory=lambda pid: kib_of(pid, "VmHWM"))
    return largest * 1024 / 1e6, float(summary["seconds"])


def measure_pass(folder: str, history: int) -> float:
    """Seconds of a pass for one new day behind so many days; the median."""
    journal, tables = f"{folder}/days{history}", f"{folder}/days{history}-tables"
    words = ("stream", journal, "--out", tables, "--once", *EMBEDDED)
    for day in range(history):
        write_day(journal, day)
    write_sessions(journal, HOSTS, history)
    summary, _ = run_command(*words, memory=kib_of)
    click.echo(f"  {history} days at once: {summary['seconds']:.1f} s", err=True)
    taken: list[float] = []
    for day in range(history, history + PASSES):
        write_day(journal, day)
        write_sessions(journal, HOSTS, day + 1)
        summary, _ = run_command(*words, memory=kib_of)
        click.echo(f"  day {day + 1}: {summary['seconds']:.1f} s, {len(summary['days'])} days", err=True)
        taken.append(float(summary["seconds"]))
    return statistics.median(taken)


@click.command()
@click.option("--only", type=click.Choice(["wide", "history"]), multiple=True, help="Measure only this.")
def main(only: tuple[str, ...]) -> None:
    """What the pipeline's cost depends on: receivers of one source, and days of history."""
    bounds: list[tuple[str, float, float]] = []

    def wide(folder: str) -> None:
        largest, seconds = measure_wide(folder)
        click.echo(f"{WIDE_HOSTS} hosts, {WIDE_NUMBERS:,} numbers: {seconds:.1f} s")
        bounds.append(("largest process, MB", largest, PROCESS_MB))

    def history(folder: str) -> None:
        short = measure_pass(folder, SHORT)
        for days, growth in LONG.items():
            long = measure_pass(folder, days)
            click.echo(f"a pass for a new day: {short:.1f} s behind {SHORT} days, {long:.1f} s behind {days}")
            bounds.append((f"pass behind {days} days / {SHORT} days", long / short, growth))

    steps: dict[str, Callable[[str], None]] = {"wide": wide, "history": history}
    with tempfile.TemporaryDirectory(prefix="bccnd-bench-") as folder:
        for name, step in steps.items():
            if not only or name in only:
                step(folder)
    judge(bounds)


if __name__ == "__main__":
    main()
