"""The generated parts of documents are up to date, and the examples of the configuration reference are good ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from bccnd.config import read
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
    manual = tmp_path / "bccnd.yaml.5"
    manual.write_text(MANUAL.replace("max_datagram Pq 1500", "max_datagram Pq 1400"))
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(reference, "MANUAL", manual)
    (tmp_path / "docs/runbook.md").write_text(f"before\n{runbook.HEADING}\nby hand\n\n### old\n\ngone\n")
    assert generator.main(["--check"]) == 1
    complaints = capsys.readouterr().err
    assert "bccnd.yaml.5" in complaints
    assert "runbook.md" in complaints
    assert "clients.md" not in complaints
    assert generator.main(["--write"]) == 0
    assert generator.main(["--check"]) == 0
    assert manual.read_text() == MANUAL
    written = (tmp_path / "docs/runbook.md").read_text()
    assert written.startswith(f"before\n{runbook.HEADING}\nby hand\n\n### ")
    assert "\n### old\n" not in written
    assert generator.main(["--chekc"]) == 2


def test_a_key_without_an_entry_or_the_reverse_is_an_error() -> None:
    for page in (MANUAL.replace(".It Cm names Pq any\n", ""), MANUAL + ".It Cm tea Pq 1\n"):
        with pytest.raises(ValueError, match=r"names|tea"):
            defaults.filled(page)
    with pytest.raises(ValueError, match=r"bus\.group"):
        defaults.filled(MANUAL.replace(".It Cm bus.group Pq the group", ".It Cm bus.group Pq bccn\n.Cm"))


def test_an_entry_holds_the_type_the_bounds_the_default_and_the_effect() -> None:
    for path, holds in (
        ("segments.port", ["1 to 65,535", "`5400`", "restart bccnd"]),
        ("dedup.horizon", ["duration", "1 h", "`2s`", "reload"]),
        ("dedup.late", ["`drop`, `deliver`"]),
        ("segments.receive_buffer", ["size", "4 KiB to 1 GiB", "`64MiB`"]),
        ("bus.sockets.path", ["none"]),
        ("metrics.groups", ["mapping", "64 entries"]),
        ("gateways.nng.queue", ["restart bccnd-nng", "16 to 8,192"]),
    ):
        entry = reference.page(MANUAL).split(f"### `{path}`\n")[1].split("\n### ")[0]
        assert [text for text in holds if text not in entry] == [], path


def at(value: Any, path: list[str]) -> Any:
    """The value of a key in a file, or in settings; the first one of lists."""
    for name in path:
        if isinstance(value, list | tuple):
            value = value[0]
        value = getattr(value, name) if isinstance(value, BaseModel) else value[name]
    return value


def test_each_key_has_an_example_that_sets_it_to_something_else_than_its_default() -> None:
    assert set(reference.EXAMPLES) == set(KEYS)
    for path, text in reference.EXAMPLES.items():
        keys = path.split(".")
        settings = read(text, path, resolve=False).settings
        assert at(yaml.safe_load(text), keys) is not None, path
        assert at(settings, keys) != KEYS[path].default, path
