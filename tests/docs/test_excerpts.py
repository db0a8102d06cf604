"""Files and parts of files that stand in documents. That they are up to date is in test_reference.py."""

from __future__ import annotations

from docs import excerpts
from docs.site import DOCS


def test_every_mark_has_its_block() -> None:
    for path in DOCS.glob("*.md"):
        text = path.read_text()
        assert text.count("<!-- the file ") == len(excerpts.BLOCK.findall(text)), path.name


def test_a_block_is_filled_with_the_file_or_with_a_part_of_it() -> None:
    mark = "<!-- the file examples/shell/subscribe.sh -->\n\n```sh\n"
    filled = excerpts.filled(f"{mark}something else\n```\nbehind\n")
    assert filled.startswith(f"{mark}#!/bin/sh\n")
    assert filled.endswith("\n```\nbehind\n")
    part = '<!-- the file examples/perl/publish.pl from "sub put {" to "}" -->\n\n```perl\n'
    lines = excerpts.filled(f"{part}```\n").removeprefix(part).splitlines()
    assert (lines[0], lines[-2:], len(lines)) == ("sub put {", ["}", "```"], 5)
