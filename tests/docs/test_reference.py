"""The generated parts of documents are up to date, and the examples of the configuration reference are good ones."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from bccnd.config.schema import RESTART_KEYS
from docs import __main__ as generator
from docs import defaults, reference, runbook, site

KEYS = {key.path: key for key in list(reference.keys())}
MANUAL = reference.MANUAL.read_text()


def test_the_generated_parts_of_documents_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert generator.main(["--check"]) == 0, capsys.readouterr().err


def test_what_is_out_of_date_is_named_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(site.DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("*.py", "*.svg", "*.png", "__*"))
    shutil.copy(site.ROOT / "README.md", tmp_path)
    copy = tmp_path / "bccnd.yaml.5"
    copy.write_text(MANUAL.replace("max_datagram Pq 1500", "max_datagram Pq 1400"))
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(reference, "MANUAL", copy)
    (tmp_path / "docs/runbook.md").write_text(f"before\n{runbook.HEADING}\nby hand\n\n### old\n\ngone\n")
    assert generator.main(["--check"]) == 1
    complaints = capsys.readouterr().err
    assert "bccnd.yaml.5" in complaints
    assert "runbook.md" in complaints
    assert "clients.md" not in complaints
    assert generator.main(["--write"]) == 0
    assert generator.main(["--check"]) == 0
    assert copy.read_text() == MANUAL
    written = (tmp_path / "docs/runbook.md").read_text()
    assert written.startswith(f"before\n{runbook.HEADING}\nby hand\n\n| metric |")
    assert "\n### old\n" not in written
    assert generator.main(["--chekc"]) == 2


def test_a_key_without_an_entry_or_the_reverse_is_an_error() -> None:
    for page in (MANUAL.replace(".It Cm names Pq any\n", ""), MANUAL + ".It Cm tea Pq 1\n"):
        with pytest.raises(ValueError, match=r"names|tea"):
            defaults.filled(page)
    with pytest.raises(ValueError, match=r"bus\.group"):
        defaults.filled(MANUAL.replace(".It Cm bus.group Pq the group", ".It Cm bus.group Pq bccn\n.Cm"))


def test_the_row_of_a_key_holds_its_default_and_bounds_and_the_page_says_when_a_change_takes_effect() -> None:
    page = reference.page(MANUAL)
    rows = dict(re.findall(r"^\| `([a-z._]+)` \| (.*) \|$", page, re.MULTILINE))
    assert set(rows) == set(KEYS)
    for path, holds in (
        ("segments.port", ["1 to 65535", "`5400`"]),
        ("dedup.horizon", ["1h", "`2s`"]),
        ("dedup.late", ["`drop`", "`deliver`"]),
        ("bus.sockets.path", ["none (required)"]),
        ("gateways.nng.max_peers", ["1 to 10,000"]),
    ):
        assert [text for text in holds if text not in rows[path]] == [], path
    before = page.partition("\n## ")[0]
    assert [key for key in RESTART_KEYS if f"`{key}`" not in before] == []
