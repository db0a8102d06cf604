"""Reads a manual page, as far as ours go, and gives its text in Markdown.

Of mdoc(7) it knows the macros that the page of the configuration uses; any other one is an error, so that nothing
of the page is left out without a word.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

#: columns of every document of this project
WIDTH: Final = 120
#: macros whose words stand as they are typed
_CODE: Final = {"Ar", "Cm", "Pa", "Ql"}
#: macros that may stand within a line of another one
_CALLABLE: Final = {*_CODE, "Fl", "Ns"}
#: what stands behind a macro's words and is none of them
_PUNCTUATION: Final = {",", ".", ";", ":", ")", "?"}
#: macros that arrange, and say nothing
_SILENT: Final = {"Bl", "Dd", "Dt", "Os"}
_ENTRY: Final = re.compile(r"Cm (?P<names>[a-z._, ]+?)(?: Pq (?P<default>.*))?")
#: what Markdown would take for its own within a line, and at its beginning
_MARKS: Final = re.compile(r"[*<\[\]]|(?<!\w)_(?!\w)")
_MARKS_AHEAD: Final = re.compile(r"^([-+#>]|\d+[.)])(?=\s)")


@dataclass
class Part:
    """Paragraphs that belong together; those of an entry say what a key means, and its default as the page has it.

    A paragraph that begins with a fence is to be left as it is.
    """

    name: str = ""
    default: str | None = None
    paragraphs: list[str] = field(default_factory=list)


@dataclass
class Section:
    """A section or subsection of a page."""

    title: str
    parts: list[Part] = field(default_factory=list)


def sections(page: str) -> list[Section]:
    """The sections and subsections of a page, in their order."""
    found: list[Section] = []
    new = True
    lines = iter(page.splitlines())
    for line in lines:
        macro, _, rest = line[1:].partition(" ") if line.startswith(".") else ("", "", line)
        if macro in _SILENT:
            continue
        if macro in ("Sh", "Ss"):
            found.append(Section(rest if macro == "Ss" else rest.capitalize(), [Part()]))
        elif macro == "It":
            found[-1].parts.append(_entry(rest))
        elif macro == "El":
            found[-1].parts.append(Part())
        elif macro == "Bd":
            found[-1].parts[-1].paragraphs.append("\n".join(("```yaml", *_literal(lines), "```")))
        elif macro != "Pp":
            text = _inline(macro, rest) if macro else _plain(rest)
            paragraphs = found[-1].parts[-1].paragraphs
            if new:
                paragraphs.append(text)
            else:
                paragraphs[-1] += f" {text}"
            new = False
            continue
        new = True
    return found


def _entry(rest: str) -> Part:
    named = _ENTRY.fullmatch(rest)
    if named is None:
        macro, _, words = rest.partition(" ")
        return Part(_inline(macro, words))
    return Part(named["names"], None if named["default"] is None else _unescaped(named["default"]))


def _literal(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line == ".Ed":
            return
        yield _unescaped(line)
    raise ValueError("a literal block without an end")


def _unescaped(text: str) -> str:
    known = text.replace(r"\(dq", '"').replace(r"\-", "-").replace(r"\&", "")
    if "\\" in known:
        raise ValueError(f"an escape that is not known here: {text}")
    return known


def _plain(text: str) -> str:
    return _MARKS.sub(r"\\\g<0>", _unescaped(text))


def _inline(macro: str, rest: str) -> str:
    """A line that begins with a macro, and may hold others."""
    words = rest.split()
    behind = ""
    while words and words[-1] in _PUNCTUATION:
        behind = words.pop() + behind
    if macro == "Pq":
        return f"({_inline(words[0], ' '.join(words[1:]))}){behind}"
    if macro in ("Nm", "Nd"):
        return _plain(rest)
    text, joins = "", False
    while macro:
        taken = 0
        while taken < len(words) and words[taken] not in _CALLABLE:
            taken += 1
        if macro == "Ns":
            joins = True
        elif joins:
            # What belongs together stands between one pair of marks.
            text, joins = text.removesuffix("`") + _piece(macro, words[:taken]).removeprefix("`"), False
        else:
            text += " " * bool(text) + _piece(macro, words[:taken])
        macro, words = words[taken] if taken < len(words) else "", words[taken + 1 :]
    return text + behind


def _piece(macro: str, words: list[str]) -> str:
    if macro in _CODE:
        return f"`{_unescaped(' '.join(words))}`"
    if macro == "Fl":
        return f"`-{' '.join(words)}`"
    if macro == "Xr":
        page, number = words
        return f"{page}({number})"
    raise ValueError(f"a macro that is not known here: {macro} {words}")


def wrapped(paragraph: str) -> str:
    """A paragraph in lines as long as they may be; none begins with what would make a list or a heading of it."""
    if paragraph.startswith("```"):
        return paragraph
    lines = textwrap.wrap(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines[:1] + [_MARKS_AHEAD.sub(r"\\\1", line) for line in lines[1:]])
