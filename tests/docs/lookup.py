"""Looks up commands that documents name: whether command, options, target, unit, event and file exist."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from bccnd.cli import bccnd_main
from bccnd.cli import main as bccn
from bccnd.log import events
from tests.docs.blocks import Inline, blocks, commands, inline
from tests.docs.follow import REFERENCE, all_blocks, blocks_of, here
from tests.support import ROOT

#: programs that can be looked up
_KNOWN: Final = re.compile(r"(?:bccn|bccnd|make|systemctl|journalctl|pytest|\.venv/bin/pytest|python -m)(?: |$)")
#: blocks that somebody runs
_PROGRAMS: Final = ("sh", "python", "c", "go", "perl")
#: what looks like a command in other blocks
_TYPED: Final = re.compile(
    r"(?:\$ )?(?:sudo |apt |bccnd? |curl |docker |git |journalctl |make |pip |pytest |python3? |systemctl )"
)
#: documents that show how commands are used, without any that is to be typed
_USAGE: Final = ("docs/commands.md", REFERENCE)
_SAYS_SO: Final = re.compile(r"\bnot tested\b")
#: what stands for something that the reader knows
_PLACEHOLDER: Final = re.compile(r"[A-Z][A-Z_]+|\.\.\.")


def named(document: str) -> Iterator[Inline]:
    """Commands in the text, and in blocks that test_commands.py does not run."""
    for one in inline(document, (ROOT / document).read_text()):
        yield from parts(one)
    for block in blocks_of(document):
        if block.kind == "sh" and not here(block):
            for command in commands(block):
                for line in command.text.replace("\\\n", " ").splitlines():
                    yield from parts(Inline(document, command.line, re.sub(r"\s+#.*", "", line).strip()))


def not_accounted_for(document: str, text: str | None = None) -> Iterator[tuple[str, str]]:
    """The blocks of commands and programs that no test runs and of which the text does not say so, and why."""
    page = (ROOT / document).read_text() if text is None else text
    found = blocks(document, page)
    for number, block in enumerate(found):
        if document in _USAGE:
            continue
        if block.kind in ("none", "text"):
            if any(_TYPED.match(line) for line in block.text.splitlines()):
                yield block.where, f"commands in a block of the kind {block.kind!r}: no test sees them"
        elif block.kind in _PROGRAMS:
            if block.mark("not run") is not None:
                if not _SAYS_SO.search(_text_before(page, block.line)):
                    yield block.where, 'marked "not run", but the text before does not say "not tested"'
            elif (name := block.mark("file")) is not None:
                used = [one for one in found[number + 1 :] if one.kind == "sh" and here(one)]
                if not any(Path(name).name in one.text for one in used):
                    yield block.where, f"no command that is run uses {name}"
            elif block.mark("run") == "booted" and block.kind != "sh":
                yield block.where, f"a booted host runs no {block.kind}"
            elif not here(block) and block.mark("run by") is None and block.mark("run") != "booted":
                yield block.where, f"no test runs this {block.kind}, and marks.yaml has no entry for it"


def _text_before(page: str, line: int) -> str:
    """The running text between a block and the block or heading before it, as one line."""
    kept: list[str] = []
    for one in reversed(page.split("\n")[: line - 1]):
        if one.startswith("#") or one.strip().startswith("```"):
            break
        kept.append(one.strip())
    return " ".join(reversed(kept))


def parts(one: Inline) -> Iterator[Inline]:
    """The commands of a line that can be looked up."""
    for part in re.split(r" && | \|\|? |; ", one.text):
        if _KNOWN.match(part):
            yield one._replace(text=part.strip())


def wrong(text: str) -> str:
    """What there is to say against a command; nothing if it is there."""
    words = shlex.split(text)
    look = {"bccn": _bccn, "bccnd": _bccnd, "make": _make, "systemctl": _units, "journalctl": _journal}
    if words[0] in look:
        return look[words[0]](words[1:])
    if words[0] == "python" and words[1] == "-m":
        return _module(words[2:])
    if words[0].endswith("pytest"):
        return "" if (ROOT / words[1]).exists() else f"there is no {words[1]}"
    return ""


def _options(command: click.Command, words: list[str]) -> str:
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("-") and name not in known and not re.fullmatch(r"-\d+|-", name):
            return f"{command.name} has no option {name}"
    return ""


def _bccn(words: list[str]) -> str:
    command: click.Command = bccn.main
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        word = rest.pop(0)
        if word == "--socket":
            rest.pop(0)
        elif word.startswith("-"):
            if output := _options(command, [word]):
                return output
        elif _PLACEHOLDER.fullmatch(word):
            return ""
        else:
            found = command.get_command(click.Context(command), word)
            if found is None:
                return f"there is no command {word!r}"
            command = found
    return _options(command, rest)


def _bccnd(words: list[str]) -> str:
    return _options(bccnd_main.main, words)


@cache
def _targets() -> frozenset[str]:
    phony = re.search(r"^\.PHONY:((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    return frozenset(phony[1].replace("\\\n", " ").split())


def _make(words: list[str]) -> str:
    missing = [one for one in words if "=" not in one and not one.startswith("-") and one not in _targets()]
    return f"there is no target {missing[0]!r}" if missing else ""


@cache
def _known_units() -> frozenset[str]:
    """Those that are shipped, and those that documents tell how to write."""
    shipped = {path.name for path in (ROOT / "systemd").iterdir()}
    reported = re.compile(r"# /(?:etc|usr/lib)/systemd/system/([\w.-]+)\n")
    return frozenset(shipped | {name for block in all_blocks() for name in reported.findall(block.text)})


def _units(words: list[str]) -> str:
    for word in words:
        if not word.startswith("bccnd"):
            continue
        name = word if "." in word or "*" in word else f"{word}.service"
        if not any(Path(unit).match(name) for unit in _known_units()):
            return f"there is no unit {name}"
    return ""


def _journal(words: list[str]) -> str:
    for word in words:
        field, _, value = word.partition("=")
        if field == "BCCND_EVENT" and value not in events.EVENTS:
            return f"there is no event {value}"
    return _units(words)


def _module(words: list[str]) -> str:
    try:
        found = import_module(words[0])
        main = getattr(import_module(f"{words[0]}.__main__") if hasattr(found, "__path__") else found, "main", None)
    except ModuleNotFoundError:
        return f"there is no module {words[0]}"
    if isinstance(main, click.Command):
        return _options(main, words[1:])
    text = Path(inspect.getsourcefile(main) or "").read_text() if main else ""
    missing = [one for one in words[1:] if one.startswith("--") and f'"{one}"' not in text]
    return f"{words[0]} has no option {missing[0]}" if missing else ""
