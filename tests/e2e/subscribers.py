"""The example clients, built and run as their own first lines say."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bccnd.cli.shared.connection import fetch_listing
from tests.e2e.harness import PATIENCE, Daemon, wait
from tests.kernel import group
from tests.support import ROOT, Closing, cannot_here

#: where the bus is in the examples' own comments
SOCKET = "/run/bccnd/bus.sock"
#: the folder under examples/, the tool it takes, the sources of a subscriber and of a publisher
LANGUAGES = {
    "c": ("cc", "subscribe.c", "publish.c"),
    "perl": ("perl", "subscribe.pl", "publish.pl"),
    "go": ("go", "cmd/bus/main.go", "cmd/bus/main.go"),
    "shell": ("socat", "subscribe.sh", "publish.sh"),
    # That Python which has bccnd.
    "python": (sys.executable, "subscribe.py", "publish.py"),
}
#: those that take packets of any size and connect again
THOROUGH = ["c", "perl", "go", "python"]
HEADER = ROOT / "examples/c"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def need(language: str) -> None:
    tool = LANGUAGES[language][0]
    if shutil.which(tool) is None:
        # `make` installs no Go; everything else must be there where CI is set.
        pytest.skip("there is no go") if tool == "go" else cannot_here(f"there is no {tool}")


class Examples:
    """Copies of the examples, built by the commands that their first lines name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[str, Path] = {}

    def lines(self, language: str, part: int) -> list[str]:
        """The command lines in the comment at the top of a source: part 1 subscribes, part 2 publishes."""
        source = ROOT / "examples" / language / LANGUAGES[language][part]
        name = "subscribe" if part == 1 else "publish"
        head = source.read_text()[:1500]
        found = re.findall(rf"^(?: \*|#|//)(?: {{3}}|\t)(.*{name}.* {SOCKET}.*?)(?: \*/)?$", head, re.MULTILINE)
        assert found, f"{source} does not say how it is run"
        return [line.replace("python3 ", f"{sys.executable} ") for line in found]

    def folder(self, language: str) -> Path:
        """Where an example's lines can be run; its first one or two have been built."""
        if language not in self._built:
            need(language)
            here = shutil.copytree(ROOT / "examples" / language, self._folder / language)
            for part in (1, 2):
                for line in self.lines(language, part):
                    build, also_run, _ = line.partition(" && ")
                    if also_run:
                        done = subprocess.run(["sh", "-c", build], cwd=here, capture_output=True, check=False)
                        assert (done.returncode, done.stderr) == (0, b"")
            self._built[language] = here
        return self._built[language]

    def program(self, language: str, part: int) -> list[str]:
        """The program itself, without the arguments, as the first line has it."""
        here = self.folder(language)
        return [
            word if not word.startswith("./") else str(here / word)
            for word in self.lines(language, part)[0].partition(f" {SOCKET}")[0].split(" && ")[-1].split()
        ]

    def subscribe(self, language: str, daemon: Daemon, pattern: str = "demo/", *options: str) -> Subscriber:
        command = [*self.program(language, 1), *options, str(daemon.bus), pattern]
        return Subscriber(daemon, self.folder(language), command)

    def publish(
        self, language: str, bus: Path | str, *arguments: str | bytes, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        command = [*self.program(language, 2), str(bus), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE, check=False)


class Subscriber(Closing):
    """An example that runs and has subscribed, and what it has printed."""

    def __init__(self, daemon: Daemon, folder: Path, command: list[str]) -> None:
        number = len(list(folder.iterdir()))
        self._out, self._err = folder / f"{number}.out", folder / f"{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder, start_new_session=True
            )
        try:
            wait(lambda: self._has_subscribed(daemon) or b"refused" in self.complained(), f"{command} to subscribe")
        except BaseException:
            self.close()
            raise

    def _has_subscribed(self, daemon: Daemon) -> bool:
        ours = group(self._process.pid)
        with daemon.connect() as bus:
            return any(client["pid"] in ours and client["subscriptions"] for client in fetch_listing(bus, "clients"))

    def signal(self, number: int) -> None:
        """Send a signal to all its processes."""
        os.killpg(self._process.pid, number)

    def printed(self) -> bytes:
        return self._out.read_bytes()

    def complained(self) -> bytes:
        return self._err.read_bytes()

    def wait_for(self, text: bytes) -> None:
        wait(lambda: text in self.printed(), f"{text[:80]!r} in {self.printed()[-200:]!r}, {self.complained()!r}")

    def close(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        self._process.wait(PATIENCE)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return Examples(tmp_path_factory.mktemp("examples"))


def compiled(out: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    compiler = options[0]
    if shutil.which(compiler) is None:
        cannot_here(f"there is no {compiler}")
    command = [*options, *STRICT, "-I", str(HEADER), "-o", str(out)]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
