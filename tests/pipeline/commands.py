"""The command line of the pipeline, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from tests.pipeline.threedays import SMALL
from tests.support import ROOT


def bccn(
    *words: str | Path,
    step: str | None = None,
    then: Callable[[subprocess.Popen[str]], object] = lambda _: None,
    cwd: Path = ROOT,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, str, str]:
    """Run the command with settings for little data, and do something when it says that it has reached a step.

    Returns its status, what it has printed, and its messages; of one that was killed, those up to that step.
    """
    settings = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]
    settings = settings if "--master" in words else []
    code = "import sys; from bccnd.cli.main import main; sys.argv[0] = 'bccn'; main()"
    with (
        # One that is killed leaves its temporary files.
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary,
        subprocess.Popen(
            # as the installed command: nothing is imported from the folder in which it runs
            [sys.executable, "-P", "-c", code, *map(str, words), *settings],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": temporary, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running,
    ):
        assert running.stdout
        assert running.stderr
        errors = ""
        for line in running.stderr:
            errors += line
            if step and step in line:
                step = None
                then(running)
                if running.poll() is not None:  # its Java may keep the pipes for a while
                    return running.returncode, "", errors
        printed = running.stdout.read()
    return running.returncode, printed, errors


def kill_after(seconds: float) -> Callable[[subprocess.Popen[str]], object]:
    """Kill the command so long after it has reached a step."""

    def kill(running: subprocess.Popen[str]) -> None:
        time.sleep(seconds)
        running.send_signal(signal.SIGKILL)
        running.wait()

    return kill
