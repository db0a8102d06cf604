"""What documents show of files is what the files hold."""

from __future__ import annotations

import pytest

from docs import excerpts
from docs.site import DOCS

NAMES = sorted(path.name for path in DOCS.glob("*.md"))


@pytest.mark.parametrize("name", NAMES)
def test_a_document_shows_files_as_they_are(name: str) -> None:
    text = (DOCS / name).read_text()
    assert excerpts.filled(text) == text, "run: make docs"
    # A mark with nothing behind it, or misspelt, would hold nothing to anything.
    assert text.count("<!-- the file ") == len(excerpts.BLOCK.findall(text))


def test_a_difference_would_be_noticed_and_put_right() -> None:
    whole = "<!-- the file examples/shell/subscribe.sh -->\n\n```sh\nsomething else\n```\nbehind\n"
    filled = excerpts.filled(whole)
    assert filled.startswith("<!-- the file examples/shell/subscribe.sh -->\n\n```sh\n#!/bin/sh\n")
    assert filled.endswith("\n```\nbehind\n")
    assert excerpts.filled(filled) == filled


def test_a_part_of_a_file_has_both_its_lines() -> None:
    mark = '<!-- the file examples/perl/publish.pl from "sub put {" to "}" -->\n\n```perl\n```\n'
    assert excerpts.filled(mark).endswith(
        "```perl\nsub put {\n    my ($frame) = @_;\n    defined send $bus, $frame, MSG_NOSIGNAL or fail($!);\n}\n```\n"
    )
