"""One small job in every language, with the real runtimes and a daemon that is killed: `examples/*/answer.*`.

Each program prints its identity, subscribes, publishes on the channel that a question names, reports what is refused,
and goes on when the daemon is back.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import bccnd
from tests.e2e.harness import BIN, PATIENCE, Daemon, Wire, wait
from tests.support import ROOT, Closing, cannot_here

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


class Answerer(Closing):
    """A program that answers, and what it has printed."""

    def __init__(self, language: Language, folder: Path, bus: Path) -> None:
        for tool in language.tools:
            if shutil.which(tool) is None:
                cannot_here(f"there is no {tool}")
        source = EXAMPLES / language.source
        program = folder / "answer"
        places = {"SOURCE": str(source), "PROGRAM": str(program), "FOLDER": str(source.parent)}
        env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "EXAMPLES": str(EXAMPLES)}

        def command(words: tuple[str, ...] | list[str]) -> list[str]:
            return [re.sub("SOURCE|PROGRAM|FOLDER", lambda found: places[found[0]], word) for word in words]

        if language.build:
            done = subprocess.run(command(language.build), cwd=source.parent, env=env, capture_output=True, check=False)
            assert (done.returncode, done.stderr) == (0, b"")
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*command(language.run), str(bus)], stdout=out, stderr=err, env=env, start_new_session=True
            )

    def printed(self) -> str:
        return self._out.read_text()

    def complained(self) -> str:
        return self._err.read_text()

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


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
def test_a_program_answers_and_survives_a_killed_daemon(name: str, tmp_path: Path) -> None:
    with (
        Daemon(tmp_path / "d") as daemon,
        Answerer(LANGUAGES[name], tmp_path, daemon.bus) as program,
        bccnd.connect(str(daemon.bus)) as bus,
    ):
        identity = ask(bus, "demo/answer").text
        wait(lambda: f"I am {identity}\n" in program.printed(), "the program to print its identity")
        asker = bus.identity()
        assert f"{asker} asks on demo/answer\n" in program.printed()
        assert ask(bus, 'demo/"quoted"\\').src == identity
        bus.publish("demo/question", "no channel")
        wait(lambda: "refused: bad_channel no channel" in program.complained(), "the refusal")
        daemon.kill()
        daemon.start()
        again = ask(bus, "demo/again")
        assert again.text == identity
        with Wire(daemon.port) as wire:
            bus.publish("demo/question", "demo/wire")
            assert identity.encode() in wire.receive(b"demo/wire|")
        assert program.process.poll() is None
    with Answerer(LANGUAGES[name], tmp_path, tmp_path / "nowhere.sock") as program:
        assert program.process.wait(PATIENCE) not in (0, None)
        assert "nowhere.sock" in program.complained()
