"""Files that stand in documents. That they are up to date is in test_reference.py."""

from __future__ import annotations

from docs import excerpts
from docs.site import DOCS


def test_every_link_that_announces_a_file_has_its_block() -> None:
    found = 0
    for path in DOCS.glob("*.md"):
        text = path.read_text()
        blocks = len(excerpts.BLOCK.findall(text))
        assert len(excerpts.LINK.findall(text)) == blocks, path.name
        found += blocks
    assert found


def test_a_block_is_filled_with_the_file() -> None:
    before = "It prints them. [This one](../examples/shell/subscribe.sh):\n\n```sh\n"
    filled = excerpts.filled(f"{before}something else\n```\nbehind\n")
    assert filled.startswith(f"{before}#!/bin/sh\n")
    assert filled.endswith("\n```\nbehind\n")


def test_a_block_behind_other_text_stays() -> None:
    text = "See [this one](../examples/shell/subscribe.sh), and do:\n\n```sh\ntrue\n```\n"
    assert excerpts.filled(text) == text
