"""Follows documents: which blocks are run where, and running them at a `Place`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tests.docs.blocks import Block, Command, blocks, commands, pattern
from tests.docs.place import NotAsWritten, Place
from tests.support import ROOT

#: marks of blocks that are not run on this host: by which file, or why not, or what file it is that is shown
ELSEWHERE: Final = ("run by", "not run", "the file")
#: made from docstrings: signatures, and examples that are not whole programs
REFERENCE: Final = "docs/python.md"
#: where the daemon's configuration is
CONFIGURATION: Final = "/etc/bccnd/bccnd.yaml"
#: for a command of a block that takes long (s)
_LONG_PATIENCE: Final = 900.0
_INCOMPLETE: Final = re.compile(r"WARNING: .* does not provide the extra")


def documents() -> list[str]:
    return ["README.md", *sorted(str(one.relative_to(ROOT)) for one in (ROOT / "docs").glob("*.md"))]


def blocks_of(document: str) -> list[Block]:
    return blocks(document, (ROOT / document).read_text())


def all_blocks() -> Iterator[Block]:
    for document in documents():
        yield from blocks_of(document)


def here(block: Block) -> bool:
    """Whether a block is run by test_commands.py."""
    if block.document == REFERENCE:
        return False
    if block.mark("file") is not None:
        return True
    if block.kind not in ("sh", "python") or any(block.mark(name) is not None for name in ELSEWHERE):
        return False
    return block.mark("run") in (None, "long")


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
        if daemon or path == CONFIGURATION:
            must(place, block.where, f"place-daemon {daemon or 'on'}")
        if user := block.mark("user"):
            place.become(user)
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
