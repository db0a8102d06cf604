"""The batch run: a journal becomes tables, or one line says why not, and the tables are as they were."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bccnd.errors import PipelineError
from bccnd.journal import file_names
from bccnd.pipeline import schema
from bccnd.pipeline.driver.build import build, once
from bccnd.pipeline.driver.embedded import EmbeddedRunner
from bccnd.pipeline.lake.delta import Lake
from tests.pipeline.commands import bccn
from tests.pipeline.threedays import content, files
from tests.support import open_to_others

HERE = EmbeddedRunner()


@pytest.fixture
def journal(small: Path, tmp_path: Path) -> Path:
    """A journal that a test may spoil."""
    return Path(shutil.copytree(small, tmp_path / "journal"))


def sums(tables: Path | str, table: str, *names: str) -> list[int]:
    """The sums of columns of a table."""
    columns = schema.TABLES[table].names
    rows_of_table = content(tables)[table]
    return [sum(row[columns.index(name)] for row in rows_of_table) for name in names]


def empty(journal: Path) -> None:
    for path in files(journal):
        path.unlink()


@pytest.mark.parametrize(
    ("spoil", "printed"),
    [
        (empty, "{journal} has no records"),
        (lambda journal: shutil.rmtree(journal / "obs"), "no journal at {journal}"),
    ],
)
def test_a_bad_journal_is_named_and_changes_nothing(
    journal: Path, tmp_path: Path, spoil: Callable[[Path], object], printed: str
) -> None:
    tables = tmp_path / "tables"
    (tables / "messages/day=2026-01-01").mkdir(parents=True)
    spoil(journal)
    with pytest.raises(PipelineError) as refused:
        build(HERE, str(journal), str(tables))
    message, remedy = str(refused.value).splitlines()
    assert printed.format(journal=journal) in message
    assert remedy.startswith("  remedy: ")
    assert os.listdir(tables / "messages") == ["day=2026-01-01"]


def test_an_unusable_file_costs_only_itself_until_it_is_repaired(
    journal: Path, small: Path, built: Path, tmp_path: Path
) -> None:
    """Of each host something else is wrong: a damaged file, a missing one, records in two files."""
    where = (str(journal), str(tmp_path / "tables"))
    of_hosts = [[path for path in files(journal) if f"host={host}/" in str(path)] for host in ("h1", "h2", "h3")]
    damaged, gone, copied = of_hosts[0][1], of_hosts[1][-2], of_hosts[2][0]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 3] ^= 4
    damaged.write_bytes(data)
    gone.unlink()
    name = file_names.read_path(str(copied.relative_to(journal)))
    assert name
    shutil.copyfile(copied, copied.with_name(f"{name.journal_id}-{name.first}.parquet"))
    outcome = build(HERE, *where)
    assert [(file.host, file.low_us > 0) for file in outcome.damaged] == [("h1", True), ("h3", False)]
    assert [(row.host, row.first_rec <= row.last_rec) for row in outcome.missing] == [("h2", True)]
    assert {row[0] for row in content(where[1])["link_loss"]} == {"h1", "h2", "h3"}
    # What is left out is not lost.
    lost, expected = (sum(sums(place, "link_loss", "lost_here", "lost_everywhere")) for place in (where[1], built))
    assert 0 < lost <= expected
    # A pass over the same files finds nothing new, and one over files that were put right all of it.
    assert once(HERE, *where).days == []
    shutil.rmtree(journal)
    shutil.copytree(small, journal)
    outcome = once(HERE, *where)
    assert (outcome.damaged, outcome.missing) == ([], [])
    assert content(where[1]) == content(built)


def test_beside_retention_a_build_goes_on_with_what_is_there(journal: Path, built: Path, tmp_path: Path) -> None:
    first = files(journal)[0]
    host = first.parent.parent.name.removeprefix("host=")
    reached: list[str] = []

    def progress(step: str) -> None:
        reached.append(step)
        if reached.count("comparing clocks") == 1 and first.exists():
            first.unlink()

    tables = str(tmp_path / "tables")
    assert build(HERE, str(journal), tables, progress=progress).damaged == []
    assert reached.count("comparing clocks") == 2
    # On the day that retention is at work on, this host counts as one that did not record.
    lost, day = schema.TABLES["link_loss"].names.index("lost_here"), first.parent.name.removeprefix("day=")
    now, before = ([row for row in content(place)["link_loss"] if row[0] == host] for place in (tables, built))
    assert sum(row[lost] for row in now if str(row[-1]) == day) == 0
    assert [row for row in now if str(row[-1]) > day] == [row for row in before if str(row[-1]) > day]


@pytest.mark.slow
def test_an_interrupted_run_ends_with_a_line_and_changes_nothing(small: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"

    def interrupt(running: subprocess.Popen[str]) -> None:
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)

    words = ("pipeline", "build", small, "--out", tables, "--embedded")
    status, printed, errors = bccn(*words, step="computing", then=interrupt)
    assert (status, printed) == (1, "")
    assert errors.splitlines()[-1] == "bccn: interrupted; the tables are unchanged"
    assert "Traceback" not in errors
    assert Lake(str(tables)).tables == set()


def test_the_summary_is_for_programs_too(small: Path, built: Path, tmp_path: Path) -> None:
    words = ("pipeline", "build", small, "--out", tmp_path / "tables", "--embedded", "--json")
    status, printed, errors = bccn(*words)
    assert status == 0, errors
    summary = json.loads(printed)
    # nothing but what the command itself is doing
    assert {line.split()[0] for line in errors.splitlines()} == {"bccn:"}
    made = content(tmp_path / "tables")
    assert {name: len(rows) for name, rows in made.items()} == summary["rows"]
    assert made == content(built)
    assert not open_to_others(tmp_path / "tables")
