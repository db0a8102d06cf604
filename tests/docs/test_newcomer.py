"""The README from "Try it", and its first report, from a clean clone: word for word, with what has to be fetched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.docs.blocks import Block
from tests.docs.follow import blocks_of, follow, here
from tests.docs.place import Place
from tests.support import ROOT, cannot_here, need_root

#: which parts of which documents, from one heading to another
_PARTS: Final = (
    ("README.md", "\n## Try it", "\n## Limits"),
    ("docs/getting-started.md", "\n## Record and report", "\n## A key"),
)
#: for one command (s): a slow network is no fault
_PATIENCE: Final = 1800.0
#: of the status page, as the README says
_PORT: Final = 9540


def section() -> list[Block]:
    """The blocks of these parts that are run here."""
    found: list[Block] = []
    for document, *titles in _PARTS:
        text = (ROOT / document).read_text()
        first, end = (text.count("\n", 0, text.index(title)) for title in titles)
        found += [block for block in blocks_of(document) if first < block.line <= end and here(block)]
    return found


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(7200)
@pytest.mark.skipif(os.environ.get("BCCND_DOCS") != "long", reason="needs a network: make test-docs does it")
def test_a_newcomer_comes_from_a_clone_to_a_picture(tmp_path: Path) -> None:
    need_root("a host of its own takes namespaces")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    with Place(tmp_path / "place", _PATIENCE, root=clone, bare=True) as place:
        if place.run(f"curl -s http://127.0.0.1:{_PORT}/ >/dev/null") == 0:
            cannot_here(f"port {_PORT} of this machine is in use")
        follow(place, section())
        assert place.run(f"curl -sf http://127.0.0.1:{_PORT}/ | grep -qi bccnd") == 0, place.shown
        assert place.run("grep -q load/there /tmp/bccnd-start/page/index.html") == 0, place.shown


def test_the_section_is_followed_to_its_end() -> None:
    followed = [block.text for block in section()]
    assert followed[0].startswith("make run ")
    assert followed[-1].startswith("bccn pipeline build ")
