"""Yields the messages of a journal or of captures in their order, for replay.

Only messages that were accepted and whose payload is known are yielded, and no reports of daemons: they speak of
numbers that a replay does not use. The others are counted. Times are those of the receiving host; of a journal of
several hosts one must be chosen, as each has received the same messages. Nothing here needs Spark.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bccnd.core.formats.tap_record import seq_of
from bccnd.core.wire import bccn1
from bccnd.core.wire.frames import REPORT
from bccnd.errors import JournalError
from bccnd.journal import file_names, reader
from bccnd.journal.capture_import import CaptureSet, CaptureSettings, Progress
from bccnd.journal.channel_patterns import ChannelPatterns
from bccnd.journal.file_names import HASHED
from bccnd.journal.listing import list_files

#: characters of a check by each algorithm, as in ``:hmac=0123456789abcdef``
_CHECKS: Final = {None: 0, "hmac": 22, "crc32": 15, "sig": 133}
#: verdicts that are replayed, and that of what the recording host itself has sent
_ACCEPTED, _OWN = {"accepted", "reordered", "restart"}, {"looped"}
_REPORT: Final = REPORT.decode()
_COLUMNS: Final = ["ts", "verdict", "algo", "src", "seq_key", "chan", "len", "payload"]


class RecordedMessage(NamedTuple):
    """A message as it was received, at ``ts`` (microseconds since 1970)."""

    ts: int
    src: str
    seq: int
    chan: str
    payload: bytes


@dataclass
class Counts:
    """Numbers of messages: yielded, without a recorded payload, with a verdict that is not replayed, and reports of
    daemons."""

    replayed: int = 0
    unrecorded: int = 0
    not_accepted: int = 0
    reports: int = 0


@dataclass(frozen=True)
class Choice:
    """The messages to replay: channels by patterns (none: all), from a time on and up to another (microseconds since
    1970), with those that the recording host sent itself (``own``) or without."""

    channels: Sequence[str] = ()
    since: int | None = None
    until: int | None = None
    own: bool = False


def is_recorded(payload: bytes | None, length: int, algo: str | None, src: str, seq: int, chan: str) -> bool:
    """Whether a payload is what was sent, and not a hash of it: its datagram had ``length`` bytes."""
    if payload is None:
        return False
    if not payload.startswith(HASHED) or len(payload) != len(HASHED) + 32:
        return True
    body = len(bccn1.build_body(src.encode(), seq, chan.encode(), payload))
    return algo in _CHECKS and length == len(b"BCCN1[%d]" % body) + _CHECKS[algo] + body


def read_messages(
    where: str,
    choice: Choice,
    counts: Counts,
    captures: CaptureSettings,
    on_progress: Progress = lambda _done, _total: None,
) -> Iterator[RecordedMessage]:
    """Yield the messages in a journal or in captures. ``captures`` names the host and says how captures are checked.
    Raises JournalError: no_journal, several_hosts, bad_file, bad_capture, no_bccn, unreadable."""
    channels, verdicts = ChannelPatterns(choice.channels or [""]), _ACCEPTED | (_OWN if choice.own else set())
    for batch in _batches(where, choice, captures, on_progress):
        times = batch.column("ts").cast(pa.int64()).to_pylist()
        for ts, row in zip(times, batch.to_pylist(), strict=True):
            if row["verdict"] not in verdicts:
                counts.not_accepted += 1
            elif row["chan"] is not None and row["chan"].startswith(_REPORT):
                counts.reports += 1
            elif row["src"] is not None and channels.match(row["chan"]):
                seq = seq_of(row["seq_key"])
                if is_recorded(row["payload"], row["len"], row["algo"], row["src"], seq, row["chan"]):
                    counts.replayed += 1
                    yield RecordedMessage(ts, row["src"], seq, row["chan"], row["payload"])
                else:
                    counts.unrecorded += 1


def _batches(where: str, choice: Choice, settings: CaptureSettings, on_progress: Progress) -> Iterator[pa.Table]:
    in_time = pc.scalar(True)
    for limit, compare in ((choice.since, operator.ge), (choice.until, operator.lt)):
        if limit is not None:
            in_time &= compare(pc.field("ts"), pa.scalar(limit, pa.timestamp("us", "UTC")))
    captures = reader.find_captures(where)
    if captures:
        for table in CaptureSet(captures, settings, on_progress).tables():
            yield table.filter(in_time).select(_COLUMNS)
        return
    place = reader.open_place(where)
    listed = list_files(
        *place,
        hosts=[settings.host] if settings.host else None,
        first_day="" if choice.since is None else file_names.day_of(choice.since),
        last_day="9999-99-99" if choice.until is None else file_names.day_of(choice.until),
    )
    listed.sort(key=attrgetter("name.journal_id", "name.first"))
    hosts = sorted({file.name.host for file in listed})
    if not hosts:
        scope = f"of the host {settings.host}" if settings.host else "in obs/"
        raise reader.no_journal(where, f"no files {scope} exist for that time")
    if len(hosts) > 1:
        shown = ", ".join(hosts[:5]) + (" ..." if len(hosts) > 5 else "")
        raise JournalError(
            "several_hosts", f"{where} has the records of {len(hosts)} hosts: {shown}", "choose one with --host"
        )
    total, done = sum(file.size for file in listed), 0
    for file in listed:
        yield from reader.rows(place, file.name, _COLUMNS, in_time)
        done += file.size
        on_progress(done, total)


class Clock:
    """Spaces messages as they were, ``speed`` times faster (0: no waiting); nothing waits where the recording clock was
    set back."""

    def __init__(
        self, speed: float, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._speed, self._now, self._sleep = speed, now, sleep
        self._first: tuple[int, float] | None = None

    def wait(self, ts: int) -> None:
        """Wait until a message of that time is due."""
        if self._speed:
            first, start = self._first = self._first or (ts, self._now())
            left = start + (ts - first) * 1e-6 / self._speed - self._now()
            if left > 0:
                self._sleep(left)
