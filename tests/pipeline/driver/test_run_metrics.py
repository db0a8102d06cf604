"""The metrics of runs: what node_exporter reads, whole, and as promtool wants it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bccnd.cli.main import main
from bccnd.pipeline.driver.build import Outcome
from bccnd.pipeline.driver.run_metrics import write_metrics
from bccnd.pipeline.inputs.coverage import DamagedFile
from tests.etc.rulebook import rules
from tests.pipeline.journals import put, rows
from tests.prometheus import promtool
from tests.support import ROOT


def figures(path: Path) -> dict[str, float]:
    lines = (line.split() for line in path.read_text().splitlines() if not line.startswith("#"))
    return {name.removeprefix("bccnd_pipeline_"): float(value) for name, value in lines}


def test_each_run_that_succeeds_replaces_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bccnd.prom"
    put(tmp_path / "journal", "h1", "j1", 1, rows(1, 3))
    put(tmp_path / "journal", "h1", "j1", 11, rows(11, 3))
    words = ["pipeline", "stream", str(tmp_path / "journal"), "--out", str(tmp_path / "tables"), "--once"]
    words += ["--embedded", "--metrics-file", str(path)]
    for days in (1, 0):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        found = figures(path)
        assert (found["days_computed"], found["records_missing"], found["files_damaged"]) == (days, 7, 0)
        assert found["lag_seconds"] == pytest.approx(found["last_success_timestamp_seconds"] - 1_700_000_013, abs=1)
    # node_exporter is another user
    assert path.stat().st_mode & 0o777 == 0o644
    before = path.read_text()
    (tmp_path / "journal/obs").rename(tmp_path / "journal/elsewhere")
    assert CliRunner().invoke(main, words).exit_code == 1
    assert path.read_text() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bccnd.prom", "journal", "tables"]


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    put(tmp_path / "journal", "h1", "j1", 1, rows(1, 3))
    words = ["pipeline", "build", str(tmp_path / "journal"), "--out", str(tmp_path / "tables"), "--embedded"]
    done = CliRunner().invoke(main, [*words, "--metrics-file", str(tmp_path / "no/where.prom")])
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].startswith("bccn: the tables are complete, but ")


def test_metrics_are_those_of_the_rules_and_the_documents(tmp_path: Path) -> None:
    outcome = Outcome(["d"], {}, 1.5, late=["x"], damaged=[DamagedFile("x", 0, 0, "", "why")], newest_us=1)
    write_metrics(str(tmp_path / "x"), outcome)
    names = {f"bccnd_pipeline_{name}" for name in figures(tmp_path / "x")}
    used = {name for rule in rules for name in re.findall(r"bccnd_pipeline_\w+", rule["expr"])}
    assert used < names
    assert set(re.findall(r"\| `(bccnd_pipeline_\w+)`", (ROOT / "docs/pipeline.md").read_text())) == names
    assert figures(tmp_path / "x")["files_damaged"] == 1
    done = promtool("check", "metrics", text=(tmp_path / "x").read_text())
    # it counts days, and takes them for a unit
    assert [line for line in done.stderr.splitlines() if "_days_computed " not in line] == []
