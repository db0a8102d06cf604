"""One small job in every language, with the real runtimes and a daemon that is killed: `examples/*/answer.*`.

Each program prints its identity, subscribes, publishes on the channel that a question names, reports what is refused,
and goes on when the daemon is back.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import bccnd
from tests.e2e.harness import BIN, PATIENCE, Daemon, Wire, wait
from tests.e2e.subscribers import Subscriber
from tests.support import ROOT, cannot_here

EXAMPLES: Final = ROOT / "examples"


class Language(NamedTuple):
    """The tools that it takes, its source below examples/, how to build that, and how to run it; PROGRAM is what is
    built."""

    tools: list[str]
    source: str
    run: list[str]
    build: tuple[str, ...] = ()


LANGUAGES: Final = {
    "c": Language(["cc"], "c/answer.c", ["PROGRAM"], ("cc", "-Wall", "-Wextra", "-Werror", "-o", "PROGRAM", "SOURCE")),
    "go": Language(["go"], "go/cmd/answer/main.go", ["PROGRAM"], ("go", "build", "-o", "PROGRAM", ".")),
    "perl": Language(["perl"], "perl/answer.pl", ["perl", "SOURCE"]),
    "python": Language([], "python/answer.py", [sys.executable, "SOURCE"]),
    "asyncio": Language([], "python/answer_asyncio.py", [sys.executable, "SOURCE"]),
    "rust": Language(["rustc"], "rust/answer.rs", ["PROGRAM"], ("rustc", "-D", "warnings", "-o", "PROGRAM", "SOURCE")),
    "node": Language(["node"], "node/answer.mjs", ["node", "SOURCE"]),
    "java": Language(["java", "javac"], "java/Answer.java", ["java", "SOURCE"]),
    "ruby": Language(["ruby"], "ruby/answer.rb", ["ruby", "SOURCE"]),
}


def command_of(language: Language, folder: Path) -> list[str]:
    """Build the program, if it is one that has to be; what runs it."""
    for tool in language.tools:
        if shutil.which(tool) is None:
            cannot_here(f"there is no {tool}")
    source = EXAMPLES / language.source
    places = {"SOURCE": str(source), "PROGRAM": str(folder / "answer")}
    if language.build:
        build = [places.get(word, word) for word in language.build]
        done = subprocess.run(build, cwd=source.parent, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
    return [places.get(word, word) for word in language.run]


def ask(bus: bccnd.Connection, chan: str) -> bccnd.Message:
    """Ask until there is an answer on a channel: a subscription may not be in force yet."""
    with bus.subscribe(chan) as answers:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            bus.publish("demo/question", chan)
            event = answers.receive(0.5)
            if isinstance(event, bccnd.Message):
                return event
    raise AssertionError("no program answers")


@pytest.mark.slow
@pytest.mark.parametrize("name", LANGUAGES)
def test_a_program_answers_and_survives_a_killed_daemon(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = command_of(LANGUAGES[name], tmp_path)
    # Some of them start bccn.
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    with (
        Daemon(tmp_path / "d") as daemon,
        Subscriber(daemon, tmp_path, [*command, str(daemon.bus)]) as program,
        bccnd.connect(str(daemon.bus)) as bus,
    ):
        identity = ask(bus, "demo/answer").text
        program.wait_for(f"I am {identity}\n".encode())
        program.wait_for(f"{bus.identity()} asks on demo/answer\n".encode())
        assert ask(bus, 'demo/"quoted"\\').src == identity
        bus.publish("demo/question", "no channel")
        wait(lambda: b"refused: bad_channel no channel" in program.complained(), "the refusal")
        daemon.kill()
        daemon.start()
        again = ask(bus, "demo/again")
        assert again.text == identity
        with Wire(daemon.port) as wire:
            bus.publish("demo/question", "demo/wire")
            assert identity.encode() in wire.receive(b"demo/wire|")
    done = subprocess.run([*command, "nowhere.sock"], capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode != 0
    assert b"nowhere.sock" in done.stderr
