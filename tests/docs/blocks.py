"""What a document holds for a machine: its blocks, the marks for them, the commands in them, what these print."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from docs.excerpts import LINK

_FENCE: Final = re.compile(r"^( *)(`{3,})([\w-]*|\{[\w-]+\}.*)\s*$")
#: what marks.yaml may say of a block
MARKS: Final = ("prepare", "file", "ends", "run by", "run", "shows", "terminal", "daemon", "user", "not run")
#: the kinds of fences that documents may use
KINDS: Final = (
    *("sh", "yaml", "python", "c", "go", "perl", "js", "java", "ruby"),
    *("ini", "json", "nginx", "caddy", "sql", "text", "none"),
)
#: how a command ends that does not end by itself: what is typed
KEYS: Final = {"Ctrl-C ends it": "\x03", "q ends it": "q"}


class BadDocument(Exception):
    """A document that no machine can follow."""


class Mark(NamedTuple):
    """What is known of a block beside its text."""

    name: str
    text: str


class Block(NamedTuple):
    """A fenced block. ``shows`` is the text block right behind it, if there is one, and ``alike`` how it is meant."""

    document: str
    line: int
    kind: str
    text: str
    marks: tuple[Mark, ...]
    shows: str = ""

    @property
    def where(self) -> str:
        return f"{self.document}:{self.line}"

    def mark(self, name: str) -> str | None:
        """What the mark of that name says; None where there is none."""
        return next((one.text for one in self.marks if one.name == name), None)


class Command(NamedTuple):
    """One command of a block, as it stands there, and what the comment behind it says."""

    line: int
    text: str
    shows: str = ""
    status: int = 0
    #: what is typed to end it; empty where it ends by itself
    key: str = ""

    @property
    def stays(self) -> bool:
        """Whether it goes on in the background."""
        return _bare(self.text).endswith("&") and not _bare(self.text).endswith("&&")


def blocks(document: str, text: str) -> list[Block]:
    """The fenced blocks of a Markdown document, in order."""
    found: list[Block] = []
    before = ""
    marks = _Marks(document)
    numbered = iter(enumerate(text.split("\n"), start=1))
    #: whether nothing but blanks has come since the last block
    behind = False
    for number, line in numbered:
        stripped = line.strip()
        if stripped.startswith("<!--"):
            raise BadDocument(f"{document}:{number}: a comment: what tests need to know stands in marks.yaml")
        fence = _FENCE.match(line)
        if fence:
            inside = _inside(document, number, fence, numbered)
            shown = LINK.search(before)
            excerpt = (Mark("the file", shown["path"]),) if shown else ()
            block = Block(document, number, fence[3], inside, excerpt + marks.take(inside))
            if block.kind == "text" and behind and found[-1].kind in ("sh", "python"):
                found[-1] = found[-1]._replace(shows=inside, marks=found[-1].marks + block.marks)
            else:
                found.append(block)
            before, behind = "", True
        elif stripped:
            before, behind = stripped, False
    marks.check_all_taken()
    return found


class _Marks:
    """The marks of a document's blocks, from marks.yaml."""

    def __init__(self, document: str) -> None:
        self._document = document
        self._left = [dict(one) for one in all_marks().get(document, ())]
        self._seen: Counter[str] = Counter()

    def take(self, block: str) -> tuple[Mark, ...]:
        """The marks of the next block, which is found by its first line without the comment."""
        first = next((_split(line.strip())[0] or line.strip() for line in block.split("\n") if line.strip()), "")
        self._seen[first] += 1
        for entry in self._left:
            if entry["block"] == first and entry.get("occurrence", 1) == self._seen[first]:
                self._left.remove(entry)
                return tuple(
                    Mark(name, str(text)) for name, text in entry.items() if name not in ("block", "occurrence")
                )
        return ()

    def check_all_taken(self) -> None:
        if self._left:
            raise BadDocument(f"{self._document}: marks.yaml has a block that is not there: {self._left[0]['block']!r}")


@cache
def all_marks() -> dict[str, list[dict[str, Any]]]:
    """By document. Raises BadDocument for a mark that does not exist."""
    marks: dict[str, list[dict[str, Any]]] = yaml.safe_load(Path(__file__).with_name("marks.yaml").read_text())
    for document, entries in marks.items():
        for entry in entries:
            if unknown := entry.keys() - {"block", "occurrence", *MARKS}:
                raise BadDocument(f"marks.yaml: {document}: unknown marks: {', '.join(sorted(unknown))}")
    return marks


def _inside(document: str, start: int, fence: re.Match[str], lines: Iterator[tuple[int, str]]) -> str:
    kept: list[str] = []
    for _, line in lines:
        if line.strip() == fence[2]:
            return "\n".join(kept) + "\n"
        kept.append(line.removeprefix(fence[1]))
    raise BadDocument(f"{document}:{start}: a block that does not end")


def commands(block: Block) -> list[Command]:
    """The commands of a `sh` block: lines that belong together are one."""
    found: list[Command] = []
    pending: list[str] = []
    first = 0
    for number, line in enumerate(block.text.splitlines(), start=block.line + 1):
        if not pending and (not line.strip() or line.lstrip().startswith("#")):
            continue
        first = first if pending else number
        pending.append(line)
        text = "\n".join(pending)
        if _whole(text):
            found.append(_command(first, text))
            pending = []
    if pending:
        raise BadDocument(f"{block.document}:{first}: a command that does not end")
    return found


def _whole(text: str) -> bool:
    """Whether the shell takes this for something complete."""
    if text.endswith("\\") or _bare(text.splitlines()[-1]).endswith(("|", "&&")):
        return False
    look = subprocess.run(["bash", "-n"], input=text + "\n", capture_output=True, text=True, check=False)
    return look.returncode == 0 and not look.stderr


def _split(line: str) -> tuple[str, str]:
    """A line without its comment, and the comment."""
    quote = ""
    for place, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "#" and (place == 0 or line[place - 1] in " \t"):
            return line[:place].rstrip(), line[place + 1 :].strip()
    return line.rstrip(), ""


def _bare(text: str) -> str:
    return _split(text.splitlines()[-1])[0]


def _command(line: int, text: str) -> Command:
    comments = [_split(one)[1] for one in text.splitlines()]
    output = " ".join(one for one in comments if one)
    shows = output.partition("=> ")[2] if output.startswith("=> ") or " => " in output else ""
    status = re.search(r"\bexit code (\d+)", output)
    key = next((typed for words, typed in KEYS.items() if words in output), "")
    for words in KEYS:
        shows = shows.partition(f"; {words}")[0]
    return Command(line, text, shows.strip(), int(status[1]) if status else 0, key)


def pattern(shown: str, *, alike: bool = False) -> re.Pattern[str]:
    """What finds the lines of ``shown`` in what a terminal shows: whole lines, one behind the other."""
    lines = []
    for line in shown.strip("\n").split("\n"):
        if line.strip() == "...":
            lines.append(r"(?:.*\n)*?")
            continue
        parts = [_literal(part, alike=alike) for part in line.strip().split("...")]
        lines.append(r" *" + ".*?".join(parts) + r"[ ]*\n")
    return re.compile("^" + "".join(lines), re.MULTILINE)


def _literal(text: str, *, alike: bool) -> str:
    if not alike:
        return re.escape(text)
    return "".join(
        r"[\d.,]+" if part[0].isdigit() else r"\s+" if part.isspace() else re.escape(part)
        for part in re.findall(r"\d[\d.,]*|\s+|[^\d\s]+", text)
    )


class Inline(NamedTuple):
    """A command in the running text."""

    document: str
    line: int
    text: str


def inline(document: str, text: str) -> list[Inline]:
    """What stands in backticks and begins like a command; blocks are left out."""
    found: list[Inline] = []
    fenced = ""
    kept: list[str] = []
    for line in text.split("\n"):
        fence = _FENCE.match(line) or (fenced and line.strip() == fenced)
        if fence:
            fenced = "" if fenced else line.strip().rstrip("abcdefghijklmnopqrstuvwxyz-")
        kept.append("" if fenced or fence else line)
    whole = "\n".join(kept)
    for one in re.finditer(r"(?<!`)`([^`]+)`(?!`)", whole):
        words = " ".join(one[1].split())
        if re.match(
            r"(?:bccn|bccnd|bccn-sbusd|make|systemctl|journalctl|pytest|python -m|\.venv/bin/pytest)(?: |$)", words
        ):
            found.append(Inline(document, whole.count("\n", 0, one.start()) + 1, words.replace("\\|", "|")))
    return found
