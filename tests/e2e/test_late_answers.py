"""The clients in C, Perl and Go, and a scripted daemon that answers a question after the program has given it up."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.sessions import Bare
from tests.e2e.subscribers import compiled, need
from tests.support import PATIENCE, ROOT

PEERS = ROOT / "tests/peers"


def in_c(folder: Path) -> list[str]:
    program = folder / "asks"
    done = compiled(program, "cc", str(PEERS / "asks.c"))
    assert (done.returncode, done.stderr) == (0, b"")
    return [str(program)]


def in_perl(_folder: Path) -> list[str]:
    return ["perl", f"-I{ROOT / 'examples/perl'}", str(PEERS / "asks.pl")]


def in_go(folder: Path) -> list[str]:
    module = shutil.copytree(ROOT / "examples/go", folder / "go")
    (module / "asks").mkdir()
    shutil.copy(PEERS / "asks.go", module / "asks")
    done = subprocess.run(["go", "build", "-o", "program", "./asks"], cwd=module, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return [str(module / "program")]


class Late(Bare):
    """Answers the first question when the program has given it up, or never, and the second one at once."""

    is_asked_again = False
    answers_the_first = True

    def reply(self, packet: bytes) -> list[bytes]:
        if packet.startswith(b"MSG gave/up"):
            self.is_asked_again = True
            return [b"CMSG !/slow\0first"] if self.answers_the_first else []
        if packet == b"CMSG !/slow" and self.is_asked_again:
            return [b"CMSG !/slow\0second"]
        return super().reply(packet)


@pytest.mark.parametrize("milliseconds", [0, 300])
@pytest.mark.parametrize("answers", [True, False], ids=["late", "never"])
@pytest.mark.parametrize(("language", "built"), [("c", in_c), ("perl", in_perl), ("go", in_go)])
def test_a_late_answer_is_dropped_and_the_next_question_gets_its_own(
    language: str, built: Callable[[Path], list[str]], answers: bool, milliseconds: int, tmp_path: Path
) -> None:
    need(language)
    with Late(str(tmp_path / "bus.sock")) as daemon:
        daemon.answers_the_first = answers
        done = subprocess.run(
            [*built(tmp_path), str(daemon.address), str(milliseconds)],
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"answer second\n", b"")
