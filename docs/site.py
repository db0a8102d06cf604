"""Makes the site of the documents: `python -m docs` (or `make docs`).

The documents themselves are not touched. They are copied, the way from one to another is put right for the place
where they come to lie, and whatever else of the repository they point to becomes a page that shows it. README.md is the
first page.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
#: the page that README.md becomes: the first one
README: Final = "index.md"
#: what says which documents there are, in which order and under which headings
INDEX: Final = "index.md"
#: the page that the index becomes
LIST: Final = "documents.md"
#: seconds for Sphinx, which takes a minute
_PATIENCE: Final = 1800
#: where pages that show files of the repository lie
SHOWN: Final = "source"
#: links outside of code: the text, the target, an anchor
_LINK: Final = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)#\s]+)(#[^)\s]*)?\)")
_FENCE: Final = re.compile(r"^ *```.*?^ *```[^\n]*$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`+[^`]*`+")
_LANGUAGES: Final = {
    ".c": "c", ".h": "c", ".go": "go", ".json": "json", ".md": "markdown", ".pl": "perl", ".py": "python",
    ".service": "ini", ".sh": "sh", ".socket": "ini", ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip


class BrokenLink(Exception):
    """A document points to something that is not there."""


def links(text: str) -> Iterator[re.Match[str]]:
    """The links of a document that are not within code."""
    hidden = [found.span() for pattern in (_FENCE, _CODE) for found in pattern.finditer(text)]
    for found in _LINK.finditer(text):
        if not any(begin <= found.start() < end for begin, end in hidden):
            yield found


def documents() -> list[str]:
    return sorted(path.name for path in DOCS.glob("*.md"))


def navigation(index: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The headings of the index, and the documents that are listed below each: what it calls them, where they lie."""
    found: list[tuple[str, list[tuple[str, str]]]] = []
    for line in index.splitlines():
        if line.startswith("## "):
            found.append((line.removeprefix("## "), []))
        elif found and line.startswith("- ") and (link := _LINK.search(line)):
            found[-1][1].append((link[1].strip("[]"), _placed(link[2], DOCS, set())))
    return found


def _placed(target: str, home: Path, shown: set[PurePosixPath]) -> str:
    """Where the target of a link lies on the site; files and folders that have to be shown for it are noted."""
    path = Path(os.path.normpath(home / target))
    if not path.exists():
        raise BrokenLink(f"{home.relative_to(ROOT)}/{target} is not there")
    if path == ROOT / "README.md":
        return README
    if path == DOCS / INDEX:
        return LIST
    if path.parent == DOCS and path.suffix != ".py":
        return path.name
    inside = PurePosixPath(path.relative_to(ROOT))
    shown.add(inside)
    return f"{SHOWN}/{inside}.md"


def copied(text: str, home: Path, shown: set[PurePosixPath]) -> str:
    """A document of a folder, as it lies on the site."""
    pieces, at = [], 0
    for link in links(text):
        if "://" in link[2] or link[2].startswith("mailto:"):
            continue
        pieces.append(text[at : link.start()])
        pieces.append(f"{link[1]}({_placed(link[2], home, shown)}{link[3] or ''})")
        at = link.end()
    return "".join((*pieces, text[at:]))


def source_of(page: str) -> str:
    """The file of the repository that a page of the site is made of."""
    if page.startswith(f"{SHOWN}/"):
        return page.removeprefix(f"{SHOWN}/")
    named = {README: "README.md", LIST: f"docs/{INDEX}"}
    return named.get(f"{page}.md", f"docs/{page}.md")


def _tree(navigation: list[tuple[str, list[tuple[str, str]]]]) -> str:
    """What Sphinx makes the navigation of, which belongs to the first page."""
    parts = [f"```{{toctree}}\n:hidden:\n\nAll documents <{LIST.removesuffix('.md')}>\n```"]
    for caption, pages in navigation:
        listed = "\n".join(f"{title} <{name.removesuffix('.md')}>" for title, name in pages if name != README)
        if listed:
            parts.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```")
    return "\n\n".join(("", *parts, ""))


def _show(inside: PurePosixPath, into: Path) -> None:
    """A page that shows a file of the repository, or what there is in a folder."""
    path = ROOT / inside
    page = into / SHOWN / f"{inside}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    head = f"---\norphan: true\n---\n\n# `{inside}`\n\n"
    if path.is_dir():
        listed = sorted(one for one in path.iterdir() if not one.name.startswith(("_", ".")))
        for one in listed:
            _show(inside / one.name, into)
        page.write_text(head + "".join(f"- [`{one.name}`]({path.name}/{one.name}.md)\n" for one in listed))
        return
    text = path.read_text(errors="replace")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    language = _LANGUAGES.get(path.suffix, "text")
    page.write_text(f"{head}{fence}{language}\n{text.rstrip()}\n{fence}\n")


def stage(into: Path) -> None:
    """Lay out everything that the site is made of in a folder."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    shown: set[PurePosixPath] = set()
    first = copied((ROOT / "README.md").read_text(), ROOT, shown)
    (into / README).write_text(first + _tree(navigation((DOCS / INDEX).read_text())))
    for path in sorted(DOCS.iterdir()):
        if path.suffix == ".md":
            name = LIST if path.name == INDEX else path.name
            (into / name).write_text(copied(path.read_text(), DOCS, shown))
        elif path.suffix in (".svg", ".png"):
            shutil.copy(path, into)
    for inside in sorted(shown):
        _show(inside, into)


def build(into: Path, staged: Path) -> int:
    """Make the site; the status that Sphinx ends with, which any warning makes 1."""
    stage(staged)
    options = ["-q", "-W", "--keep-going", "-n", "-E", "-b", "html", "-c", str(DOCS)]
    command = [sys.executable, "-m", "sphinx", *options, "-d", str(staged.with_suffix(".trees"))]
    return subprocess.run([*command, str(staged), str(into)], cwd=ROOT, check=False, timeout=_PATIENCE).returncode
