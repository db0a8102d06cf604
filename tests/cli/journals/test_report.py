"""bccn report: a page, the findings in lines, and one line for what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bccnd.cli.main import main
from tests.pipeline.reporting import put, write
from tests.pipeline.runtimes import runtimes as runtimes
from tests.support import ROOT

HOSTS = ("h01", "h02", "h03")
SENDERS = ("h01/app/7", "h02/app/7", "h03/app/7")


def bccn(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    write(
        tmp_path / "tables",
        HOSTS,
        SENDERS,
        missed=lambda host, sender, minute: 9 if host == "h02" and minute < 30 else 0,
    )
    return tmp_path / "tables"


def test_a_page_and_what_to_look_at(tmp_path: Path, tables: Path) -> None:
    done = bccn(tables, "--out", tmp_path / "page", "--title", "A & B")
    assert (done.exit_code, done.stderr) == (0, "")
    finding, page = done.stdout.splitlines()
    assert finding.startswith("urgent:  h02")
    assert page == f"{tmp_path}/page/index.html"
    assert "<title>A &amp; B</title>" in Path(page).read_text()
    found = json.loads(bccn(tables, "--out", tmp_path / "page", "--json").stdout)
    assert found["page"] == page
    assert [(one["kind"], one["severity"], one["about"]) for one in found["findings"]] == [
        ("receiver", "urgent", ["h02"])
    ]
    assert "540 of 7,200" in found["findings"][0]["evidence"]
    damaged = [{"path": f"obs/{number}", "why": "5\N{NO-BREAK SPACE}% torn"} for number in range(2)]
    put(tables, "_state/damaged", damaged)
    _, finding = json.loads(bccn(tables, "--out", tmp_path / "page", "--json").stdout)["findings"]
    assert finding["members"] == ["obs/0: 5 % torn", "obs/1: 5 % torn"]


def test_only_a_part_of_the_time(tmp_path: Path, tables: Path) -> None:
    done = bccn(tables, "--out", tmp_path, "--from", "2026-11-21T10:30", "--to", "2026-11-21")
    assert done.stdout == f"nothing to act on\n{tmp_path}/index.html\n"
    assert "21 Nov 2026, 10:30 to 11:00 UTC" in (tmp_path / "index.html").read_text()
    assert bccn(tables, "--out", tmp_path, "--from", "2026-11-21T12:30+02:00").stdout == done.stdout


def test_what_is_wrong_is_told_in_a_line(tmp_path: Path, tables: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("earlier")
    for arguments, status, says in (
        ((tmp_path / "nowhere", "--out", page), 1, "nowhere: no such folder\n  remedy: "),
        ((tmp_path / "empty", "--out", page), 1, "no tables here"),
        ((tables, "--out", tmp_path / "file"), 1, "file cannot be used"),
        ((tables, "--out", page, "--until", "2020-01-01"), 1, "these tables have no rows"),
        ((tables, "--out", page, "--from", "yesterday"), 2, "'yesterday'"),
        ((tables, "--out", page, "--from", "2026-11-22", "--to", "2026-11-21"), 2, "--since is not before --until"),
        ((tables,), 2, "'--out'"),
    ):
        done = bccn(*arguments)
        assert (done.exit_code, says in done.stderr, done.stdout) == (status, True, ""), done.stderr
        assert "Traceback" not in done.stderr
        assert (page / "index.html").read_text() == "earlier"


@pytest.mark.slow
@pytest.mark.parametrize(("missing", "status"), [("pyarrow", 1), ("jinja2", 1), ("pyspark", 0)])
def test_without_what_it_takes_it_says_what_to_install(tmp_path: Path, tables: Path, missing: str, status: int) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from bccnd.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "report", str(tables), "--out", str(tmp_path / "page")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert ("pip install '.[report]'" in done.stderr) == bool(status)
    assert "Traceback" not in done.stderr
