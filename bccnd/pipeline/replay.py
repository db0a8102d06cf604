"""What was said once, out of a journal or of captures, in its order, to be said again.

Law: only what was accepted and is known to the last byte is given; everything else is counted. Times are those of the
receiver whose journal it is; of several hosts in a journal one has to be chosen, or everything would come as often as
it was heard. Nothing here needs Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from bccnd.core import bccn1
from bccnd.core.capture import Tally
from bccnd.core.observe import seq_of
from bccnd.core.pattern_tree import PatternTree
from bccnd.core.patterns import DIALECTS
from bccnd.errors import JournalError
from bccnd.journal import files, layout
from bccnd.pipeline.captures import CaptureSet, CaptureSettings, Progress, no_bccn, observations, parts
from bccnd.pipeline.source import journals
from bccnd.pipeline.source.wanted import Wanted

#: what stands in a journal for a payload of which only the hash was kept, before 32 bytes
HASHED: Final = b"sha256:"
_HASHED_LENGTH: Final = len(HASHED) + 32
#: characters of a check by each algorithm, as in ``:hmac=0123456789abcdef``
_CHECKS: Final = {None: 0, "hmac": 22, "crc32": 15, "sig": 133}
_ACCEPTED: Final = ("accepted", "reordered", "restart")
#: the verdict of what programs of the recording host have sent themselves
_OWN: Final = "looped"
_COLUMNS: Final = ["ts", "verdict", "algo", "src", "seq_key", "chan", "len", "payload"]


class Said(NamedTuple):
    """A message as it was heard, at ``ts`` (microseconds since 1970)."""

    ts: int
    src: str
    seq: int
    chan: str
    payload: bytes


@dataclass
class Counts:
    """What became of the rows that were looked at."""

    given: int = 0
    #: of these the payload was not recorded
    unrecorded: int = 0
    #: refused, or not for us: verdicts that are not played
    not_accepted: int = 0


@dataclass(frozen=True)
class Choice:
    """What to play: channels by patterns (none: all), from a time on and up to another (microseconds since 1970), with
    what the host's own programs had sent, or without."""

    channels: Sequence[str] = ()
    since: int | None = None
    until: int | None = None
    own: bool = False


class Channels:
    """Patterns of the dialect ``path``; channels that begin with ``!`` fit only patterns that do too."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._everything = not patterns
        self._trees = PatternTree[int](DIALECTS["path"]), PatternTree[int](DIALECTS["path"])
        for pattern in patterns:
            tree = self._trees[pattern.startswith("!")]
            tree.add(tree.compile(pattern.encode()), 1)

    def fit(self, chan: str) -> bool:
        return self._everything or bool(self._trees[chan.startswith("!")].match(chan.encode()))


def is_recorded(payload: bytes | None, length: int, algo: str | None, src: str, seq: int, chan: str) -> bool:
    """Whether a payload is what was sent, and not a hash of it: what it is part of had ``length`` bytes."""
    if payload is None:
        return False
    if not payload.startswith(HASHED) or len(payload) != _HASHED_LENGTH:
        return True
    body = len(bccn1.build_body(src.encode(), seq, chan.encode(), payload))
    return algo in _CHECKS and length == len(b"BCCN1[%d]" % body) + _CHECKS[algo] + body


def said(
    where: str,
    choice: Choice,
    counts: Counts,
    captures: CaptureSettings | None = None,
    on_progress: Progress | None = None,
) -> Iterator[Said]:
    """The messages in a journal or in captures. ``captures`` names the host and says how captures are judged.

    Raises JournalError: no_journal, several_hosts, no_such_host, bad_file, bad_capture, no_bccn, unreadable.
    """
    channels = Channels(choice.channels)
    for batch in _batches(where, choice, captures, on_progress or (lambda _done, _total: None)):
        table = batch.select(_COLUMNS)
        times = table.column("ts").cast(pa.int64()).to_pylist()
        for ts, row in zip(times, table.to_pylist(), strict=True):
            if row["verdict"] not in _ACCEPTED and not (choice.own and row["verdict"] == _OWN):
                counts.not_accepted += 1
            elif row["src"] is not None and channels.fit(row["chan"]):
                seq = seq_of(row["seq_key"])
                payload = row["payload"]
                if is_recorded(payload, row["len"], row["algo"], row["src"], seq, row["chan"]):
                    counts.given += 1
                    yield Said(ts, row["src"], seq, row["chan"], payload)
                else:
                    counts.unrecorded += 1


def _in_time(choice: Choice) -> pc.Expression | None:
    found = None
    kind = pa.timestamp("us", tz="UTC")
    if choice.since is not None:
        found = pc.field("ts") >= pa.scalar(choice.since, pa.int64()).cast(kind)
    if choice.until is not None:
        until = pc.field("ts") < pa.scalar(choice.until, pa.int64()).cast(kind)
        found = until if found is None else found & until
    return found


def _batches(
    where: str, choice: Choice, captures: CaptureSettings | None, on_progress: Progress
) -> Iterator[pa.RecordBatch]:
    filesystem, root = journals.open_place(where)
    kind = filesystem.get_file_info(root).type
    if kind == pafs.FileType.NotFound:
        raise journals.no_journal(where, "there is nothing")
    in_time = _in_time(choice)
    if kind == pafs.FileType.File:
        for batch in _of_capture(where, captures or CaptureSettings("capture"), on_progress):
            found = batch if in_time is None else batch.filter(in_time)
            yield from [found] if found.num_rows else []
        return
    host = captures.host if captures is not None else ""
    wanted = Wanted(hosts=frozenset([host]) if host else None)
    if choice.since is not None:
        wanted.first_day = layout.day_of(choice.since)
    if choice.until is not None:
        wanted.last_day = layout.day_of(choice.until)
    found_files = journals.find(filesystem, root, wanted)
    hosts = sorted({one.file.host for one in found_files})
    if not hosts:
        what = f"of the host {host}" if host else "in obs/"
        raise journals.no_journal(where, f"there are no files {what} for that time")
    if len(hosts) > 1:
        some = ", ".join(hosts[:5]) + (" ..." if len(hosts) > 5 else "")
        raise JournalError("several_hosts", f"{where} is of {len(hosts)} hosts: {some}", "choose whose with --host")
    total, done = sum(one.size for one in found_files), 0
    for one in found_files:
        yield from journals.rows(filesystem, root, one.file, in_time)
        done += one.size
        on_progress(done, total)


def _of_capture(where: str, settings: CaptureSettings, on_progress: Progress) -> Iterator[pa.RecordBatch]:
    tally = Tally()
    captures = CaptureSet([where], tally, on_progress)
    for part in parts(observations(captures.packets(), settings, tally)):
        yield from files.obs_table(settings.host, "", 0, part).to_batches()
    if not tally.datagrams:
        raise no_bccn([where], settings.port, tally)


class Clock:
    """When to say what: as far apart as it was, ``speed`` times faster; at once with a speed of 0. Nothing waits where
    their clock was set back."""

    def __init__(
        self,
        speed: float,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._speed = speed
        self._now = now
        self._sleep = sleep
        self._first: tuple[int, float] | None = None

    def wait(self, ts: int) -> None:
        """Until a message of that time is due."""
        if not self._speed:
            return
        if self._first is None:
            self._first = ts, self._now()
        since, begin = self._first
        due = begin + (ts - since) * 1e-6 / self._speed
        left = due - self._now()
        if left > 0:
            self._sleep(left)
