"""The README from "Try it" to the report, from a clean clone: word for word, with what has to be fetched fetched."""

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

#: where it begins and ends
_FIRST: Final = "\n## Try it"
_END: Final = "\n## Limits"
#: for one command (s): a slow network is no fault
_PATIENCE: Final = 1800.0
#: of the status page, as the README says
_PORT: Final = 9540


def section() -> list[Block]:
    """The blocks of that part of the README that are run here."""
    text = (ROOT / "README.md").read_text()
    first, end = (text.count("\n", 0, text.index(title)) for title in (_FIRST, _END))
    return [block for block in blocks_of("README.md") if first < block.line <= end and here(block)]


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
        assert place.run("grep -q load/there page/index.html") == 0, place.shown


def test_the_section_is_followed_to_its_end() -> None:
    followed = [block.text for block in section()]
    assert followed[0].startswith("make run ")
    assert followed[-1].startswith("bccn pipeline build ")
