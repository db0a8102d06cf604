"""Every command of README and docs/*.md runs as it is written, and shows what the document says that it shows.

How documents are written for this stands in `tests/docs/__init__.py`. Blocks that take long are run by
`make test-docs`, blocks for a booted host by `make test-systemd`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bccnd.config import read
from tests.docs.blocks import KINDS, Block, Command, blocks, commands, pattern
from tests.docs.place import NotAsWritten, Place
from tests.support import ROOT

#: whether the blocks that take long are run, too: `make test-docs`
LONG: Final = os.environ.get("BCCND_DOCS") == "long"
#: blocks that nobody runs, at the most: each has its reason beside it
NOT_RUN: Final = 8
#: marks of blocks that are not run on this host: by whom, or why not, or what file it is that is shown
ELSEWHERE: Final = ("run by", "not run", "the file")
#: for a command of a block that takes long (s)
_LONG_PATIENCE: Final = 900.0
#: where the daemon's configuration is
_CONFIGURATION: Final = "/etc/bccnd/bccnd.yaml"
#: what only a booted host has
_BOOTED: Final = re.compile(r"\b(?:systemctl|journalctl|systemd-analyze)\b")
_INCOMPLETE: Final = re.compile(r"WARNING: .* does not provide the extra")


def documents() -> list[str]:
    return ["README.md", *sorted(str(one.relative_to(ROOT)) for one in (ROOT / "docs").glob("*.md"))]


def blocks_of(document: str) -> list[Block]:
    return blocks(document, (ROOT / document).read_text())


def all_blocks() -> Iterator[Block]:
    for document in documents():
        yield from blocks_of(document)


def here(block: Block) -> bool:
    """Whether a block is run by this test, in this run."""
    if block.mark("file") is not None:
        return True
    if block.kind not in ("sh", "python") or any(block.mark(name) is not None for name in ELSEWHERE):
        return False
    where = block.mark("run")
    return where is None or (where == "long" and LONG)


@pytest.mark.root
@pytest.mark.timeout(3600 if LONG else 600)
@pytest.mark.parametrize("document", documents())
def test_what_a_document_says_can_be_done(document: str, tmp_path: Path) -> None:
    to_run = [block for block in blocks_of(document) if here(block)]
    if not to_run or (LONG and not any(block.mark("run") == "long" for block in to_run)):
        pytest.skip("nothing in it is run here")
    with Place(tmp_path / "place") as place:
        follow(place, to_run)


def follow(place: Place, to_run: list[Block]) -> None:
    """Do what the blocks say, one behind the other."""
    started = False
    for block in to_run:
        prepare, path, daemon = (block.mark(name) for name in ("prepare", "file", "daemon"))
        if not started and not daemon:
            must(place, block.where, "place-daemon")
        started = True
        if prepare:
            must(place, block.where, prepare, patience_for(block))
            place.rest()
        if path is not None:
            write(place, path, block.text)
        if daemon or path == _CONFIGURATION:
            must(place, block.where, f"place-daemon {daemon or 'on'}")
        if path is not None:
            continue
        start = len(place.shown)
        if block.kind == "sh":
            for command in commands(block):
                obey(place, block, command)
        else:
            run_python(place, block)
        if block.shows:
            alike = block.mark("shows") == "alike"
            place.wait_for(pattern(block.shows, alike=alike).search, start, f"{block.where} to show:\n{block.shows}")


def write(place: Place, path: str, text: str) -> None:
    there = place.folder / "text"
    there.write_text(text)
    must(place, path, f"mkdir -p \"$(dirname '{path}')\" && cp {there} '{path}'")


def patience_for(block: Block) -> float | None:
    """What each command of a block may take at the most, and what is prepared for it (s); None for what is usual."""
    return _LONG_PATIENCE if block.mark("run") == "long" else None


def must(place: Place, where: str, text: str, patience: float | None = None) -> None:
    status = place.run(text, patience=patience)
    if status:
        raise NotAsWritten(f"{where}: what is prepared ended with status {status}:\n{text}\n{place.shown[-4000:]}")


def obey(place: Place, block: Block, command: Command) -> None:
    start = len(place.shown)
    where = f"{block.document}:{command.line}"
    # What goes on in a terminal of its own goes on behind this one.
    stays = command.stays or block.mark("terminal") == "own"
    text = f"{{ {command.text}\n}} </dev/null &" if stays and not command.stays else command.text
    status = place.run(text, shows=command.shows, key=command.key, patience=patience_for(block))
    # Whoever was interrupted may say so.
    if status != command.status and not (command.key == "\x03" and status == 130):
        raise NotAsWritten(
            f"{where}: {command.text}\nended with status {status}, not {command.status}:\n{place.shown[start:][-4000:]}"
        )
    if stays:
        place.rest()
    if command.shows:
        place.wait_for(pattern(command.shows).search, start, f"{where} to show: {command.shows}")
    if _INCOMPLETE.search(place.shown[start:]):
        raise NotAsWritten(f"{where}: {place.shown[start:]}")


def run_python(place: Place, block: Block) -> None:
    program = place.folder / "program.py"
    program.write_text(block.text)
    key = "\x03" if block.mark("ends") == "Ctrl-C" else ""
    shows = block.shows.strip().splitlines()[-1] if block.shows else ""
    status = place.run(f"python {program}", key=key, shows=shows)
    if status not in (0, 130 if key else 0):
        raise NotAsWritten(f"{block.where}: ended with status {status}:\n{place.shown[-4000:]}")


# ---- what needs no host


@pytest.mark.parametrize("document", documents())
def test_a_document_can_be_read(document: str) -> None:
    for block in blocks_of(document):
        if block.kind.startswith("{"):  # an order to who makes the site
            continue
        assert block.kind in KINDS, f"{block.where}: {block.kind or 'nothing'} is no kind of block: {KINDS}"
        where = block.mark("run")
        assert where in (None, "long", "booted"), f"{block.where}: {where}"
        assert block.mark("terminal") in (None, "own"), block.where
        assert block.mark("daemon") in (None, "on", "off"), block.where
        if block.kind == "sh":
            found = commands(block)
            assert found, f"{block.where}: no command in it"
            # Whoever asks for systemd where there is none gets no error in a chroot.
            assert not here(block) or not [one for one in found if _BOOTED.search(one.text)], f"{block.where}: booted"


@pytest.mark.parametrize("document", documents())
def test_configurations_in_documents_are_good_ones(document: str) -> None:
    for block in blocks_of(document):
        if block.kind == "yaml" and block.mark("not run") is None:
            path = block.mark("file")
            if path is None or path == _CONFIGURATION:
                read(block.text, block.where, resolve=False)


def test_who_is_said_to_run_a_block_does() -> None:
    for block in all_blocks():
        said = block.mark("run by")
        if said is None:
            continue
        name, _, text = said.partition(": ")
        file = ROOT / name
        assert file.is_file(), f"{block.where}: there is no {name}"
        has = " ".join(file.read_text().split())
        parts = [text] if text else [_without_comment(command.text) for command in commands(block)]
        for part in parts:
            assert " ".join(part.split()) in has, f"{block.where}: {name} does not hold {part!r}"


def _without_comment(text: str) -> str:
    return re.sub(r"\s+#.*", "", text)


def test_few_blocks_are_run_by_nobody_and_each_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    nobody = [(block, reason) for block in all_blocks() if (reason := block.mark("not run")) is not None]
    with capsys.disabled():
        for block, reason in nobody:
            print(f"\nnot run: {block.where}: {reason}", end="")
    assert all(len(reason.split()) > 2 for _, reason in nobody)
    assert len(nobody) <= NOT_RUN
