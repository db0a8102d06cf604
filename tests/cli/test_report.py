"""bccn report: a page, the findings in lines, and one line for what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.reporting import MINUTE, START, write
from tests.support import ROOT

HOSTS = ("h01", "h02", "h03")
SENDERS = ("h01/app/7", "h02/app/7", "h03/app/7")


def bccn(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from bccnd.cli.tool import main; main()", "report", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


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
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"urgent:  h02 misses messages of everybody\n{tmp_path}/page/index.html\n"
    assert "<title>A &amp; B</title>" in (tmp_path / "page" / "index.html").read_text()


def test_findings_for_programs(tmp_path: Path, tables: Path) -> None:
    done = bccn(tables, "--out", tmp_path / "page", "--json")
    found = json.loads(done.stdout)
    assert found["page"] == f"{tmp_path}/page/index.html"
    assert [(one["kind"], one["severity"], one["about"]) for one in found["findings"]] == [
        ("receiver", "urgent", ["h02"])
    ]
    assert "7.5 % (540 of 7,200 messages)" in found["findings"][0]["evidence"]


def test_only_a_part_of_the_time(tmp_path: Path, tables: Path) -> None:
    done = bccn(tables, "--out", tmp_path, "--from", "2026-11-21T10:30", "--to", "2026-11-21")
    assert done.stdout == f"nothing asks for attention\n{tmp_path}/index.html\n"
    assert "21 Nov 2026, 10:30 to 11:00 UTC" in (tmp_path / "index.html").read_text()
    zoned = bccn(tables, "--out", tmp_path, "--from", "2026-11-21T12:30+02:00")
    assert zoned.stdout == done.stdout
    assert START + 30 * MINUTE == 1_795_257_000_000_000


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("nowhere", "--out", "page"), 1, "nowhere: there is no such folder\n  remedy: "),
        (("empty", "--out", "page"), 1, "no tables here"),
        (("tables", "--out", "file"), 1, "file/index.html cannot be written"),
        (("tables", "--out", "page", "--to", "2020-01-01"), 1, "there is nothing in these tables from that time"),
        (("tables", "--out", "page", "--from", "yesterday"), 2, "'yesterday' is no time"),
        (("tables", "--out", "page", "--from", "2026-11-22", "--to", "2026-11-21"), 2, "--from is not before --to"),
        (("tables",), 2, "Missing option '--out'"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(
    tmp_path: Path, tables: Path, arguments: tuple[str, ...], status: int, says: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text("earlier")
    places = {"nowhere", "empty", "tables", "page", "file"}
    done = bccn(*(tmp_path / one if one in places else one for one in arguments))
    assert done.returncode == status, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert (tmp_path / "page" / "index.html").read_text() == "earlier"


@pytest.mark.parametrize("missing", ["pyarrow", "matplotlib"])
def test_without_what_it_takes_it_says_what_to_install(tmp_path: Path, tables: Path, missing: str) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / f"{missing}.py").write_text("raise ImportError('not installed')")
    done = bccn(tables, "--out", tmp_path / "page", PYTHONPATH=f"{hidden}:{ROOT}")
    assert done.returncode == 1
    assert "pip install 'bccnd[pipeline]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_tables_need_no_spark(tmp_path: Path, tables: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "pyspark.py").write_text("raise ImportError('not installed')")
    done = bccn(tables, "--out", tmp_path / "page", PYTHONPATH=f"{hidden}:{ROOT}")
    assert done.returncode == 0, done.stderr


def test_terminals_take_no_orders_from_names(tmp_path: Path) -> None:
    evil = "h\x1b[2J/x"
    write(
        tmp_path / "tables",
        HOSTS,
        (*SENDERS, evil),
        missed=lambda host, sender, minute: 9 if sender == evil else 0,
    )
    done = bccn(tmp_path / "tables", "--out", tmp_path)
    assert "\x1b" not in done.stdout
    assert "What h\\x1b[2J sends is lost by everybody" in done.stdout
