"""The clients in C, Perl and Go, by programs that use them with a scripted daemon."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.client.sessions import BATCH, META, Bare, without_syncs
from tests.e2e.subscribers import compiled, need
from tests.support import PATIENCE, ROOT

PEERS = ROOT / "tests/peers"


def output(language: str, name: str, folder: Path, daemon: Bare, *arguments: str) -> bytes:
    """Build a program of `PEERS`, run it, and return what it prints."""
    need(language)
    program = folder / name
    command = [str(program)]
    if language == "perl":
        command = ["perl", f"-I{ROOT / 'examples/perl'}", str(PEERS / f"{name}.pl")]
    elif language == "c":
        done = compiled(program, "cc", str(PEERS / f"{name}.c"))
        assert (done.returncode, done.stderr) == (0, b"")
    else:
        module = shutil.copytree(ROOT / "examples/go", folder / "go")
        (module / "cmd" / name).mkdir()
        shutil.copy(PEERS / f"{name}.go", module / "cmd" / name)
        subprocess.run(["go", "build", "-o", str(program), f"./cmd/{name}"], cwd=module, check=True)
    words = [*command, str(daemon.address), *arguments]
    done = subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


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


@pytest.mark.parametrize("milliseconds", ["0", "300"])
@pytest.mark.parametrize("answers", [True, False], ids=["late", "never"])
@pytest.mark.parametrize("language", ["c", "perl", "go"])
def test_a_late_answer_is_dropped(language: str, answers: bool, milliseconds: str, tmp_path: Path) -> None:
    with Late(str(tmp_path / "bus.sock")) as daemon:
        daemon.answers_the_first = answers
        assert output(language, "asks", tmp_path, daemon, milliseconds) == b"answer second\n"


@pytest.mark.parametrize("language", ["perl", "go"])
def test_a_key_or_pattern_with_a_nul_is_refused_here(language: str, tmp_path: Path) -> None:
    with Bare(str(tmp_path / "bus.sock")) as daemon:
        errors = output(language, "asks", tmp_path, daemon, "nul").splitlines()
        assert [b"NUL" in line for line in errors] == [True] * 5
        assert {packet for sent in daemon.received for packet in without_syncs(sent)} <= {META, BATCH}


def test_perl_sends_text_as_utf8_and_bytes_as_they_are(tmp_path: Path) -> None:
    raw = "é".encode() + b"\xff"
    with Bare(str(tmp_path / "bus.sock")) as daemon:
        asked = "CMSG !/é\0→".encode()
        daemon.answers[asked] = ["CMSG !/é\0an answer: é".encode()]
        assert output("perl", "texts", tmp_path, daemon) == "an answer: é\n".encode()
        assert without_syncs(daemon.received[0]) == [
            *(META, "SUB connect/é".encode(), "MSG a/é\0é".encode(), "MSG a/→\0→".encode()),
            *("MSG a/→\0".encode() + raw, b"MSG " + raw + "\0→".encode(), b"MSG number\x007"),
            *("SUB é/→".encode(), b"SUB " + raw, "UNSUB é/→".encode(), asked),
        ]
