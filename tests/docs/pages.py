"""Reads what documents hold for a machine: fenced blocks, the commands in them and in the running text, and links."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from docs.site import DOCS, ROOT

_FENCE: Final = re.compile(r"^( *)(`{3,})([^`]*)$")
_COMMENT: Final = re.compile(r"(?:^|\s)#(?:\s+(.*))?$")
_COMMAND: Final = re.compile(r"(?:bccnd?|make|systemctl|journalctl|pytest|python -m)(?: |$)")


class Block(NamedTuple):
    """A fenced block; ``before`` is the paragraph above it."""

    page: str
    line: int
    kind: str
    text: str
    before: str


class Command(NamedTuple):
    """A command of a `sh` block, with the comment behind it."""

    line: int
    text: str
    comment: str = ""

    @property
    def shows(self) -> str:
        """The line that the page says it shows, as a regular expression; empty if it says nothing."""
        shown = self.comment.partition("=> ")[2].partition("; Ctrl-C")[0].strip()
        return pattern(shown) if shown else ""

    @property
    def status(self) -> int:
        code = re.search(r"\bexit code (\d+)", self.comment)
        return int(code[1]) if code else 0

    @property
    def stays(self) -> bool:
        """Whether it goes on in the background."""
        return re.search(r"(?<!&)&(?:\s*#.*)?$", self.text) is not None


def pattern(shown: str) -> str:
    """Return a regular expression for a line as a page shows it, with `...` for anything."""
    return "^ *" + ".*".join(re.escape(part) for part in shown.strip().split("...")) + " *$"


def pages() -> list[str]:
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in DOCS.glob("*.md"))]


def read_page(page: str) -> tuple[list[Block], str]:
    """The blocks of a page, and its text with empty lines in their place."""
    blocks: list[Block] = []
    text: list[str] = []
    opened: re.Match[str] | None = None
    held: list[str] = []
    before, start = "", 0
    for number, line in enumerate((ROOT / page).read_text().split("\n"), start=1):
        fence = _FENCE.match(line)
        if opened is not None and line.strip() == opened[2]:
            blocks.append(Block(page, start, opened[3].strip(), "\n".join(held) + "\n", before))
            opened, before = None, ""
        elif opened is not None:
            held.append(line.removeprefix(opened[1]))
        elif fence is not None:
            opened, held, start = fence, [], number
        else:
            text.append(line)
            ends_paragraph = text[-2:-1] == [""] and line.strip()
            before = line.strip() if ends_paragraph else f"{before} {line.strip()}".strip()
            continue
        text.append("")
    assert opened is None, f"{page}:{start}: the block does not end"
    return blocks, "\n".join(text)


def commands(block: Block) -> list[Command]:
    """The commands of a `sh` block; lines that the shell reads as one command are one."""
    found: list[Command] = []
    pending: list[str] = []
    for number, line in enumerate(block.text.splitlines(), start=block.line + 1):
        if not pending and (not line.strip() or line.lstrip().startswith("#")):
            continue
        pending.append(line)
        text = "\n".join(pending)
        # Without its comment, whose quotes the shell ignores.
        bare = _COMMENT.sub("", line).rstrip()
        if bare.endswith(("|", "&&", "\\")):
            continue
        if subprocess.run(["bash", "-n"], input=text + "\n", capture_output=True, text=True, check=False).stderr:
            continue
        comments = (_COMMENT.search(one) for one in pending)
        comment = " ".join(one[1] or "" for one in comments if one)
        found.append(Command(number - len(pending) + 1, text, comment.strip()))
        pending = []
    assert not pending, f"{block.page}:{block.line}: a command does not end"
    return found


def named_commands(page: str) -> list[Command]:
    """Every command of a page that can be looked up, of its text and of its blocks."""
    blocks, text = read_page(page)
    lines = [
        (text.count("\n", 0, one.start()) + 1, " ".join(one[1].split()).replace("\\|", "|"))
        for one in re.finditer(r"(?<!`)`([^`]+)`(?!`)", text)
    ]
    for block in blocks:
        joined = block.text.replace("\\\n", " ") if block.kind == "sh" else ""
        lines += [(block.line, _COMMENT.sub("", line).strip()) for line in joined.splitlines()]
    parts = [(line, part.strip()) for line, whole in lines for part in re.split(r" && | \|\|? |; ", whole)]
    return [Command(line, part) for line, part in parts if _COMMAND.match(part)]


def links(text: str) -> list[str]:
    """The targets of links and pictures within the repository; what is in backticks is no link."""
    found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text))
    return [one for one in found if not re.match(r"[a-z]+:", one)]


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^#+ (.*)$", read_page(str(path.relative_to(ROOT)))[1], re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found
