"""The README's five minutes, from a clean clone: word for word, with what has to be fetched fetched.

Takes a network to install from, and the ports that the README names; so `make test-docs` does it, and no other run.
What it took is printed, and how long it may take is for no test to say: that is up to the network and the machine.
"""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from tests.docs.blocks import Block, blocks
from tests.docs.place import Place
from tests.docs.test_commands import LONG, follow
from tests.support import ROOT, cannot_here, need_root

_TITLE: Final = "## Your own traffic in five minutes"
#: for one command (s): a slow network is no fault
_PATIENCE: Final = 1800.0
#: of the status page, as the README says
_PORT: Final = 9540


def section() -> list[Block]:
    """The blocks of that part of the README."""
    text = (ROOT / "README.md").read_text()
    start = text.index(_TITLE)
    before = text.count("\n", 0, start)
    part = text[start : text.index("\n## ", start + 1)]
    return [block._replace(line=block.line + before) for block in blocks("README.md", part)]


def free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.root
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not LONG, reason="make test-docs follows the README from a clean clone")
def test_a_newcomer_comes_from_a_clone_to_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_root("a host of its own takes namespaces")
    if not free(_PORT):
        cannot_here(f"somebody serves port {_PORT} of this machine already")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    began = time.monotonic()
    with Place(tmp_path / "place", _PATIENCE, root=clone, bare=True) as place:
        follow(place, section())
        assert place.run("curl -sf http://127.0.0.1:9540/ | grep -qi bccnd") == 0, place.shown
        assert place.run("test $(grep -c '<svg' page/index.html) -gt 0 && grep -q clock/there page/index.html") == 0
        with capsys.disabled():
            print()
            for command, at, took in place.took:
                print(f"{at - began:7.1f} s  for {took:6.1f} s  {' '.join(command.split())[:90]}")


def test_the_section_is_there_and_is_followed_to_its_end() -> None:
    followed = [block.text for block in section()]
    assert followed[0].startswith("make run ")
    assert followed[-1].startswith("bccn report ")
