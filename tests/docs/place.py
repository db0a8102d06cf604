"""A terminal on a host of its own, as somebody has it who follows a document."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.docs.blocks import pattern
from tests.support import ROOT, Closing, need_root
from tools.bench.procs import family

_HERE: Final = Path(__file__).parent
#: for one command (s); generous, because it only matters when something is broken
PATIENCE: Final = 60.0
#: for how long little has to be done before all are taken to be at rest (s), and how much that is (ticks of 10 ms); a
#: program that starts takes more than that, even where it gets a tenth of a processor
_REST: Final = 0.5
_IDLE: Final = 3
#: whoever never rests is not waited for any longer (s)
_RESTLESS: Final = 15.0
#: how long a command that does not end by itself is watched when it has shown what it shows (s)
_WATCHED: Final = 2.0
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()][0-9A-B]|[=>])")


class NotAsWritten(AssertionError):
    """The document says one thing, and the terminal another."""


class Place(Closing):
    """A host, and bash on it, in ``root``. ``shown`` is what the terminal has shown so far."""

    def __init__(self, folder: Path, patience: float = PATIENCE, *, root: Path = ROOT, bare: bool = False) -> None:
        need_root("a host of its own takes namespaces")
        self.root = root
        self.bare = bare
        self.folder = folder
        self.patience = patience
        self.shown = ""
        self._said = b""
        self._done = 0
        folder.mkdir()
        (folder / "status").touch()
        (folder / "rc").write_text(self._rc())
        self._terminal, slave = pty.openpty()
        modes = termios.tcgetattr(slave)
        modes[1] &= ~termios.ONLCR
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        termios.tcsetwinsize(slave, (50, 160))
        seen = {str(Path(sys.prefix).resolve()), str(Path(sys.base_prefix).resolve())}
        spaces = ["--mount", "--pid", "--ipc", "--uts", *([] if bare else ["--net"])]
        self._process = subprocess.Popen(
            [
                # A test process has a network of its own; its parent has that of the machine.
                *(["nsenter", f"--net=/proc/{os.getppid()}/ns/net"] if bare else []),
                *("unshare", *spaces, "--propagation", "private", "--fork", "--kill-child"),
                *("sh", str(_HERE / "place.sh"), str(folder), str(root), "shared" if bare else "own", *sorted(seen)),
            ],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
        )
        os.close(slave)
        try:
            self._wait(lambda: self._finished() == 1, "a shell on a host of its own")
        except BaseException:
            self.close()
            raise
        self._done = 1

    def _rc(self) -> str:
        """What the shell starts with."""
        usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        if self.bare:
            # From where packages come is for this machine to say; nothing of them is kept here.
            ours = re.compile(r"PIP_.*|.*_proxy|.*_PROXY|SSL_.*|JAVA_HOME")
            given = {name: value for name, value in os.environ.items() if ours.fullmatch(name)}
            given |= {"PATH": usual, "PIP_CACHE_DIR": "/root/place/pip"}
        else:
            given = {
                "PATH": f"{Path(sys.executable).parent}:{usual}",
                # A tree that was built elsewhere is tested where it is; else the repository's own.
                "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)),
                "PIP_NO_INDEX": "1",
                "PIP_NO_BUILD_ISOLATION": "0",
                "BCCND_PURE": "1",
            }
        exported = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in given.items())
        return f"""
PS1= PS2=
unset HISTFILE
set -o pipefail
{exported}
export HOME=/root LANG=C.UTF-8 TERM=dumb NO_COLOR=1 PAGER=cat SYSTEMD_PAGER= EDITOR=true
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
cd {self.root}
PROMPT_COMMAND='echo $? >>{self.folder}/status'
"""

    # ---- what is typed

    def become(self, user: str) -> None:
        """From now on an ordinary user types, who is made for that."""
        entered = " ".join(shlex.quote(str(one)) for one in (self.folder, *self.folder.parents[:-1]))
        opened = f"chmod a+x {entered}; chmod a+rw {self.folder} {self.folder}/*"
        shell = f"bash --noprofile --rcfile {self.folder}/rc --noediting -i"
        (self.folder / "rc").write_text(self._rc().replace("HOME=/root", f"HOME=/home/{user}"))
        status = self.run(
            f"useradd --create-home {user}; {opened}; exec setpriv --reuid {user} --regid {user} --init-groups {shell}"
        )
        if status:
            raise NotAsWritten(f"no shell of {user}:\n{self.shown[-2000:]}")

    def run(self, text: str, *, shows: str = "", key: str = "", patience: float | None = None) -> int:
        """Type a command and wait for its end; ``key`` is typed when it has shown ``shows``. Its status."""
        start = len(self.shown)
        command = self.folder / "command"
        command.write_text(text + "\n")
        self._type(f". {command}\n")
        if key:
            self._watch(start, shows)
            if self._finished() > self._done:
                raise NotAsWritten(f"{text}\nended by itself:\n{self.shown[start:]}")
            self._type(key)
        self._wait(lambda: self._finished() > self._done, f"this to end:\n{text}", patience)
        self._done = self._finished()
        status = int((self.folder / "status").read_text().split()[-1])
        self._read()
        return status

    def rest(self) -> None:
        """Wait until nobody on this host has much to do: whoever starts, or works off something, is through with it."""
        deadline = time.monotonic() + _RESTLESS
        before = self._times()
        while time.monotonic() < deadline:
            end = time.monotonic() + _REST
            while time.monotonic() < end:
                self._read(0.05)
            now = self._times()
            if before.keys() & now.keys() and sum(now[pid] - before.get(pid, 0) for pid in now) <= _IDLE:
                return
            before = now

    def wait_for(self, found: Callable[[str], object], start: int, what: str) -> None:
        """Wait until ``found`` what the terminal has shown since ``start``. Raises NotAsWritten."""
        self._wait(lambda: found(self.shown[start:]), what)

    def _watch(self, start: int, shows: str) -> None:
        """As somebody does who looks at a program for a while and has seen enough."""
        if shows:
            self.wait_for(pattern(shows).search, start, f"{shows!r}")
        else:
            deadline = time.monotonic() + _RESTLESS
            while len(self.shown) == start and time.monotonic() < deadline and self._finished() == self._done:
                self._read(0.05)
            self.rest()
        deadline = time.monotonic() + _WATCHED
        while time.monotonic() < deadline:
            self._read(0.05)

    # ---- what lies below

    def _type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _read(self, timeout: float = 0.0) -> None:
        before = len(self._said)
        while select.select([self._terminal], [], [], timeout)[0]:
            try:
                data = os.read(self._terminal, 65536)
            except OSError:  # nobody has the other end any more
                return
            self._said += data
            timeout = 0.0
        if len(self._said) == before:
            return
        # Who begins again at the top of the screen begins a line.
        text = _ESCAPES.sub("", self._said.decode(errors="replace").replace("\x1b[H", "\n"))
        self.shown = re.sub(r"[^\n]*\r(?!\n)", "", text.replace("\r\n", "\n"))

    def _finished(self) -> int:
        return (self.folder / "status").read_text().count("\n")

    def _wait(self, done: Callable[[], object], what: str, patience: float | None = None) -> None:
        deadline = time.monotonic() + (patience or self.patience)
        while not done():
            self._read(0.02)
            if done():
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NotAsWritten(f"waited in vain for {what}\nThe terminal shows:\n{self.shown[-4000:]}")

    def _times(self) -> dict[int, int]:
        """The processes of this host, with the processor time that each has taken (ticks)."""
        taken = {}
        for pid in family(self._process.pid)[1:]:
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                taken[pid] = int(fields[11]) + int(fields[12])
        return taken

    def close(self) -> None:
        """End the host and all that runs on it."""
        for pid in reversed(family(self._process.pid)[1:]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)
        shutil.rmtree(self.folder, ignore_errors=True)
