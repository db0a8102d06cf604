"""A recorder as a process of its own, beside a real daemon."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.harness import Daemon, Program, wait
from tests.support import ROOT

#: the tool of this tree, wherever the installed one may be from
TOOL = (sys.executable, "-c", "from bccnd.cli.main import main; main()")


class Recorder(Program):
    """`bccn record` with the configuration of ``daemon``; its log goes to ``log``."""

    def __init__(self, daemon: Daemon, *options: str, start: bool = True) -> None:
        self.daemon = daemon
        self.options = options
        self.log = daemon.folder / "recorder.log"
        self.patience = daemon.patience
        if start:
            self.start()

    @property
    def command(self) -> Sequence[str]:
        return [*TOOL, "record", "--config", str(self.daemon.config), *self.options]

    def spawn(self) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if name != "BCCN_SOCKET"}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, umask=0
            )

    def start(self) -> None:
        """Start, and wait until it records."""
        before = self.output().count("recording what")
        self.process = self.spawn()
        wait(
            lambda: self.output().count("recording what") > before or self.ended(),
            f"a recorder:\n{self.output()}",
            self.patience,
        )
        assert not self.ended(), self.output()

    def journals(self) -> list[str]:
        """The journals that were begun so far."""
        return re.findall(r"recording what .*, as (\S+)", self.output())

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self.ended():
            status = self.stop()
            if kind is None:
                assert status == 0, self.output()


def files(journal: Path) -> list[Path]:
    """Finished files with records."""
    return sorted(journal.glob("obs/host=*/day=*/[!.]*.parquet"))
