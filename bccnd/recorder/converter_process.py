"""The process that converts logs to files, apart from the recording, which does not wait for it.

Invariant: one request on its input and one answer on its output, each a line of JSON; an error is an answer too. It
exits when its input ends, and ignores signals, which are for its parent. Two of them never work on one spool: the later
one waits for the earlier to exit, which ends its request first even if its parent was killed.

- ``{"journal", "log"}`` converts a log to the journal's files: ``{"rows", "files", "bytes", "end", "saved"}``
  (`convert.Converted`).
- ``{"journal", "host", "current", "age", "size"}`` removes what is too old or too much, but not of the journal that is
  ``current``: ``{"files", "bytes"}``.
- Instead of either: ``{"errno", "text"}`` for an OSError, ``{"bad"}`` for a log that cannot be read, ``{"bug"}`` with a
  traceback for anything else.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from typing import Any, Final

from bccnd.errors import JournalError

#: its nice value: the recording comes first
_NICE: Final = 5


class ConverterProcess:
    """The converting process for a spool, started when it is needed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self._process is None:
            code = f"import sys; sys.path[:] = {sys.path!r}; from bccnd.recorder.converter_process import main; main()"
            # As isolated from a user's environment as this process.
            flags = ["-I"] * sys.flags.isolated + ["-S"] * sys.flags.no_site
            command = [sys.executable, *flags, "-c", code, self._folder]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 -- our own

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer. Raises OSError, as it does; BrokenPipeError if it has died."""
        self.start()
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
        answer = b""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        if not answer.endswith(b"\n"):
            self.end()
            raise BrokenPipeError("the process that writes files has died")
        return checked(json.loads(answer))

    def end(self) -> None:
        """Close its input; a running request completes."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(BrokenPipeError), process:
                pass


def checked(answered: dict[str, Any]) -> dict[str, Any]:
    """Return an answer, unless it is an OSError: that is raised."""
    if "errno" in answered:
        raise OSError(answered["errno"], answered["text"])
    return answered


# -- the process


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    lock = os.open(f"{sys.argv[1]}/lock.files", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    for line in sys.stdin.buffer:
        answered = answer(json.loads(line))
        with contextlib.suppress(BrokenPipeError):  # the parent was killed, and so the input ends
            os.write(1, json.dumps(answered).encode() + b"\n")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked; an error is an answer too."""
    try:
        return _fulfil(request)
    except JournalError as error:
        return {"bad": error.detail}
    except OSError as error:
        return {"errno": error.errno or 0, "text": error.strerror or str(error).partition("\n")[0]}
    except Exception:  # noqa: BLE001 -- whatever is wrong with one log, there are others
        return {"bug": traceback.format_exc()}


def _fulfil(request: dict[str, Any]) -> dict[str, Any]:
    """Raises OSError, JournalError."""
    # What takes long to load is loaded here, and only here.
    from bccnd.journal import files
    from bccnd.recorder.convert import convert
    from bccnd.recorder.retention import retain

    filesystem, root = files.open_root(request["journal"])
    if "log" in request:
        return convert(request["log"], filesystem, root)._asdict()
    limits = request["age"], request["size"]
    count, size = retain(filesystem, root, request["host"], *limits, time.time(), request["current"])
    return {"files": count, "bytes": size}
