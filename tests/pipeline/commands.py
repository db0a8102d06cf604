"""The command line of the pipeline, in a process with a Spark of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.pipeline.threedays import SMALL
from tests.support import ROOT


def bccn(*words: str | Path, **environment: str) -> subprocess.Popen[str]:
    """Start the command with settings for little data."""
    settings = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]
    code = "import sys; from bccnd.cli.main import main; sys.argv[0] = 'bccn'; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words), *settings],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
