"""The load: programs that publish and receive numbered messages, and the account that is made of what they tell."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support import Closing
from tests.systemd.host import PATIENCE, Host, children
from tests.systemd.network import BROADCAST, Segment

#: the programs, by their names on every host
PROGRAMS: Final = {name: Path(__file__).with_name(f"{name}.py") for name in ("witness", "speaker")}
KEY: Final = b"0123456789abcdef0123456789abcdef"
#: what a connection tells of a publisher of which it has heard nothing
_NOTHING: Final[Mapping[str, Any]] = {"count": 0, "last": 0, "doubled": 0, "disordered": 0}
#: messages of an input at most, and those in the queue of a client
INPUT: Final = 64
QUEUE: Final = 1000
#: from where the programs are started, on every host
_BIN: Final = "/usr/local/bin"


class Program(Closing):
    """A running load program; it has said that it is ready."""

    def __init__(self, words: Sequence[str], *, fork: bool) -> None:
        self._words = words
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._fork = fork
        self._unread = b""
        self._said: dict[str, Any] = {}
        assert self._line() == "ready"

    def _line(self) -> str:
        """The next line it says."""
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._unread:
            ready = select.select([output], [], [], max(0.0, deadline - time.monotonic()))[0]
            assert ready, f"{' '.join(self._words)} says nothing"
            data = os.read(output, 1 << 20)
            assert data, f"{' '.join(self._words)} has ended with status {self._process.wait(5)}"
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def signal(self, number: int) -> None:
        """Send the program a signal; nsenter, which has entered a host for it, waits outside."""
        pid = self._process.pid
        for one in children(pid) if self._fork else [pid]:
            os.kill(one, number)

    def report(self) -> dict[str, Any]:
        """What it has to tell so far."""
        self.signal(signal.SIGUSR1)
        return dict(json.loads(self._line()))

    def finish(self, *, ask: bool = True) -> dict[str, Any]:
        """Have it come to its end, or wait until it does by itself; what it tells."""
        if not self._said:
            if ask and self._process.poll() is None:
                self.signal(signal.SIGTERM)
            self._said = json.loads(self._line())
            assert self._process.wait(PATIENCE) == 0
        return self._said

    def close(self) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
            self._process.kill()
            self._process.wait(PATIENCE)
        if self._process.stdout is not None:
            self._process.stdout.close()


def witness(host: Host, *options: str) -> Program:
    """Connections to the bus of a host, that note all they are told."""
    return Program(host.inside(f"{_BIN}/witness", *options), fork=True)


def local_speaker(host: Host, number: int, rate: int, *options: str) -> Program:
    """A program of a host that publishes over its bus."""
    words = (f"{_BIN}/speaker", "-i", str(number), "-r", str(rate))
    return Program(host.inside(*words, *options), fork=True)


def remote_speaker(segment: Segment, host: str, number: int, rate: int, *options: str) -> Program:
    """A program of a host without a daemon, straight on the segment."""
    words = [sys.executable, str(PROGRAMS["speaker"]), "-i", str(number), "-r", str(rate)]
    return Program([*segment.on(host), *words, "-a", BROADCAST, "-c", f"far-{host}/x/1", *options], fork=False)


def _kind(connection: Mapping[str, Any], number: int) -> str:
    return f"connection {number} ({'slow' if connection['slow'] else 'fast'}{', batch' if connection['batch'] else ''})"


def faults(report: Mapping[str, Any], sent: Mapping[int, int], crashes: int = 0, *, here: bool = True) -> list[str]:
    """What is wrong with what the connections of a witness were told, if publishers have sent so many messages each,
    and the daemon ``here``, or that of another host, has crashed so often."""
    return [
        f"{_kind(one, number)} {what}"
        for number, one in enumerate(report["connections"])
        for what in (*_of_connection(one, sent, crashes), *_of_telling(one, crashes if here else 0, elsewhere=not here))
    ]


def _of_telling(one: Mapping[str, Any], crashes: int, *, elsewhere: bool) -> Iterator[str]:
    if one["unannounced"] and not elsewhere:
        yield f"learned {one['unannounced']} times of a gap only after what came behind it"
    # What waits for a slow one when the next crash comes is lost, that it was told of the one before too.
    if one["crashes"] != crashes and not (one["slow"] and 1 <= one["crashes"] < crashes):
        yield f"was told of {one['crashes']} crashes, not of {crashes}"


def _of_connection(one: Mapping[str, Any], sent: Mapping[int, int], crashes: int) -> Iterator[str]:
    if one["ended"]:
        yield f"lost its connection: {one['ended']}"
    if one["refused"]:
        yield f"was told {one['refused']} control messages, the first: {one['first_refused']}"
    if one["strange"]:
        yield f"got {one['strange']} packets that no publisher has sent"
    if one["told"] and not one["slow"]:
        yield f"was told of gaps of {one['told']}, although it reads all the time"
    missing = 0
    for publisher, count in sent.items():
        heard = one["publishers"].get(str(publisher), _NOTHING)
        missing += count - heard["count"]
        if count and heard is _NOTHING:
            yield f"heard nothing of publisher {publisher}"
        for what, words, most in (("doubled", "again", crashes * INPUT), ("disordered", "out of order", 0)):
            if heard[what] > most:
                yield f"got {heard[what]} messages of publisher {publisher} {words}"
        if heard["last"] > count:
            yield f"got number {heard['last']} of publisher {publisher}, which has sent {count}"
    strangers = sorted(set(one["publishers"]) - {str(publisher) for publisher in sent})
    if strangers:
        yield f"heard of publishers {strangers}"
    most = sum(sent.values()) if crashes and one["slow"] else crashes * (QUEUE + INPUT)
    if not 0 <= missing - one["told"] <= most:
        yield f"lacks {missing} messages and was told of {one['told']}"


class Load(Closing):
    """2,000 messages a second to 20 clients of host ``a``, and a client of host ``b`` that hears of them by broadcast.

    Publisher 0 is a program of ``a``, publisher 1 is one of ``c``, straight on the segment.
    """

    #: a second, of each publisher
    RATE: Final = 1000
    CLIENTS: Final = 20
    BATCH: Final = 5
    SLOW: Final = 4

    def __init__(self, a: Host, b: Host | None, segment: Segment, key: Path) -> None:
        self._programs: list[Program] = []
        self.sent: dict[int, int] = {}
        try:
            self.here = self._add(
                witness(a, "-n", str(self.CLIENTS), "-b", str(self.BATCH), "-w", str(self.SLOW), "-p", "5")
            )
            self.there = self._add(witness(b)) if b is not None else None
            self.local = self._add(local_speaker(a, 0, self.RATE))
            self.remote = self._add(remote_speaker(segment, "c", 1, self.RATE, "-k", str(key)))
        except BaseException:
            self.close()
            raise

    def _add(self, program: Program) -> Program:
        self._programs.append(program)
        return program

    def finish(self, crashes: int = 0) -> list[str]:
        """End it; all that is wrong with what was received if the daemon of host ``a`` has crashed so often."""
        wrong = []
        for speaker, told in ((self.remote, 0), (self.local, crashes)):
            printed = speaker.finish()
            self.sent[printed["id"]] = printed["sent"]
            if printed["ended"] or printed["refused"] or printed["told"] != told:
                wrong.append(f"publisher {printed['id']}, which is to be told of {told} crashes: {printed}")
        assert all(count > 100 for count in self.sent.values()), self.sent
        wrong += [f"a: {one}" for one in faults(self.here.finish(), self.sent, crashes)]
        if self.there is not None:
            wrong += [f"b: {one}" for one in faults(self.there.finish(), self.sent, crashes, here=False)]
        return wrong

    def close(self) -> None:
        for program in self._programs:
            program.close()
