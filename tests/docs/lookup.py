"""Looks up a command that a document or a message names: whether command, options, target, unit and file exist."""

from __future__ import annotations

import re
import shlex
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from bccnd.cli import bccnd_main
from bccnd.cli import main as bccn
from bccnd.log import events
from tests.docs.pages import pages
from tests.support import ROOT

#: what stands for something that the reader knows
_PLACEHOLDER: Final = re.compile(r"[A-Z][A-Z_]+|\.\.\.")


def wrong(text: str) -> str:
    """Say what is wrong with a command; nothing if it exists."""
    try:
        program, *words = shlex.split(text)
    except ValueError as error:
        return f"{text}: {error}"
    if program == "bccn":
        return _bccn(words)
    if program == "bccnd":
        return _options(bccnd_main.main, words)
    if program == "make":
        missing = [word for word in words if not re.search(r"=|^-|^#", word) and word not in _targets()]
        return f"there is no target {missing[0]}" if missing else ""
    if program in ("systemctl", "journalctl"):
        return next((f"there is no {word}" for word in words if not _is_known_to_systemd(word)), "")
    if program == "python" and words[0] == "-m":
        return "" if _module_exists(words[1]) else f"there is no module {words[1]}"
    if program == "pytest":
        return "" if (ROOT / words[0]).exists() else f"there is no {words[0]}"
    return ""


def _bccn(words: list[str]) -> str:
    command: click.Command = bccn.main
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        word = rest.pop(0)
        if word == "--socket":
            rest.pop(0)
        elif word.startswith("-"):
            if fault := _options(command, [word]):
                return fault
        elif _PLACEHOLDER.fullmatch(word):
            return ""
        else:
            found = command.get_command(click.Context(command), word)
            if found is None:
                return f"there is no command {word}"
            command = found
    return _options(command, rest)


def _options(command: click.Command, words: list[str]) -> str:
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help", "-h", "-"}
    names = [word.partition("=")[0] for word in words if word.startswith("-") and not re.fullmatch(r"-\d+", word)]
    return next((f"{command.name} has no option {name}" for name in names if name not in known), "")


@cache
def _targets() -> frozenset[str]:
    phony = re.findall(r"^\.PHONY:((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return frozenset(" ".join(phony).replace("\\\n", " ").split())


@cache
def _units() -> frozenset[str]:
    """Those that are shipped, and those that documents tell how to write."""
    shipped = {path.name for path in (ROOT / "systemd").iterdir()}
    written = re.compile(r"# /(?:etc|usr/lib)/systemd/system/([\w.-]+)\n")
    return frozenset(shipped | {name for page in pages() for name in written.findall((ROOT / page).read_text())})


def _is_known_to_systemd(word: str) -> bool:
    field, _, value = word.partition("=")
    if field == "BCCND_EVENT":
        return value in events.EVENTS
    if not word.startswith("bccnd"):
        return True
    name = word if "." in word or "*" in word else f"{word}.service"
    return any(Path(unit).match(name) for unit in _units())


def _module_exists(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
