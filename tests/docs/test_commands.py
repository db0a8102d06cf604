"""Every command of README and docs/*.md runs as it is written, and shows what the document says that it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from bccnd.config import read
from tests.docs.blocks import KINDS, all_marks, commands
from tests.docs.follow import CONFIGURATION, all_blocks, blocks_of, documents, follow, here
from tests.docs.lookup import not_accounted_for
from tests.docs.place import Place
from tests.support import ROOT

#: documents whose commands are run in every run of the tests; those of the others take too long for that
QUICK: Final = ("docs/monitoring.md", "docs/operations.md", "docs/runbook.md", "docs/systemd.md")
#: blocks that no test runs, at the most: each has its reason beside it
NOT_RUN: Final = 10
#: what only a booted host has
_BOOTED: Final = re.compile(r"\b(?:systemctl|journalctl|systemd-analyze)\b")


@pytest.mark.root
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "document",
    [
        one if one in QUICK else pytest.param(one, marks=pytest.mark.slow)
        for one in documents()
        if any(here(block) for block in blocks_of(one))
    ],
)
def test_what_a_document_says_can_be_done(document: str, tmp_path: Path) -> None:
    with Place(tmp_path / "place") as place:
        follow(place, [block for block in blocks_of(document) if here(block)])


def test_documents_can_be_read() -> None:
    assert all_marks().keys() <= set(documents()), "marks.yaml names a document that is not there"
    for block in all_blocks():
        if block.kind.startswith("{"):  # a directive for the site's generator
            continue
        assert block.kind in KINDS, f"{block.where}: {block.kind or 'nothing'} is no kind of block: {KINDS}"
        assert block.mark("run") in (None, "long", "booted"), block.where
        assert block.mark("terminal") in (None, "own"), block.where
        assert block.mark("daemon") in (None, "on", "off"), block.where
        if block.kind == "sh":
            found = commands(block)
            assert found, f"{block.where}: no command in it"
            # In a chroot systemctl succeeds and does nothing.
            booted = [one for one in found if _BOOTED.search(one.text)]
            assert not (booted and here(block)), f"{block.where}: only a booted host has systemd"


def test_configurations_in_documents_are_good_ones() -> None:
    for block in all_blocks():
        if block.kind == "yaml" and block.mark("not run") is None and block.mark("file") in (None, CONFIGURATION):
            read(block.text, block.where, resolve=False)


def test_the_file_that_is_said_to_run_a_block_holds_its_commands() -> None:
    for block in all_blocks():
        output = block.mark("run by")
        if output is None:
            continue
        name, _, text = output.partition(": ")
        held = " ".join((ROOT / name).read_text().split())
        for part in [text] if text else [re.sub(r"\s+#.*", "", command.text) for command in commands(block)]:
            assert " ".join(part.split()) in held, f"{block.where}: {name} does not hold {part!r}"


def test_every_program_is_run_or_the_text_says_that_it_is_not() -> None:
    found = [f"{one}: {output}" for document in documents() for one, output in not_accounted_for(document)]
    assert found == []


def test_few_blocks_are_run_by_no_test() -> None:
    assert sum(block.mark("not run") is not None for block in all_blocks()) <= NOT_RUN
