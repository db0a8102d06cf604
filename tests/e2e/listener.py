"""A program that listens to a segment, and what it prints."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.e2e.harness import PATIENCE, wait
from tests.kernel import listens
from tests.support import Closing


class Listener(Closing):
    """A process that listens at a port, or has ended, when this has been made."""

    def __init__(self, port: int, command: Sequence[str | Path]) -> None:
        # A group of its own, because a shell has children.
        self.process = subprocess.Popen(
            [*map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            wait(lambda: listens(self.process.pid, port) or self.process.poll() is not None, f"{command} to listen")
        except BaseException:
            self.close()
            raise

    def until(self, end: bytes) -> bytes:
        """What it prints up to the line with this end."""
        assert self.process.stdout is not None
        text = b""
        while not text.endswith(end):
            line = self.process.stdout.readline()
            assert line, f"ended before {end!r}, after {text!r}"
            text += line
        return text

    def end(self, number: int | None = None) -> tuple[int, bytes, bytes]:
        """Wait for its end, or bring it about; exit status, what it printed, what it complained of."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE)
