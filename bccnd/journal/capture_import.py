"""Converts packet captures to a journal: what a host without a daemon received, with the verdicts of a daemon.

Invariant: every datagram goes through the daemon's own code, in the order and at the time of its stamps. The same
captures give the same files; one that cannot be read to its end leaves the journal as it was. Memory is bounded:
captures are read and files are written in pieces.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from bccnd.core.formats.pcap import CaptureCounts, Datagram, Packet, unwrap
from bccnd.core.formats.tap_record import Observation, observe
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.matching.routes import Routes
from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.receiving.judgement import Arrival
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import HeartbeatRules, Liveness
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.trust.integrity import IntegrityChecker, make_checker
from bccnd.core.trust.prepared_hmac import PreparedHmac
from bccnd.core.wire import frames
from bccnd.core.wire.bccn1 import MAX_RECEIVE
from bccnd.errors import JournalError
from bccnd.journal import file_names, files
from bccnd.journal.capture_file import Capture
from bccnd.journal.listing import list_files
from bccnd.journal.record_writer import RecordWriter
from bccnd.journal.session_files import write_sessions
from bccnd.journal.sessions import RecorderSession
from bccnd.version import VERSION

#: rows that are objects at the same time; a few hundred bytes each
PART: Final = 10_000
#: the number of the first record, as the recorder counts
FIRST: Final = 1
#: seconds between two sweeps of the trackers, as in the daemon
SWEEP: Final = 0.25
#: and after more than a minute without a datagram; still far below what counts as a sleep of the machine
COARSE_SWEEP: Final = 1.0
#: seconds after which sweeps change nothing more: a day, when trackers expire, and an hour
LONGEST_SWEEP: Final = 90_000.0
#: seconds by which stamps may go back without the clock having been set: interfaces are not read in strict order
BACKWARDS: Final = 1.0

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CaptureSettings:
    """The host that captured, and how datagrams are checked. Without keys and signers, checks that cannot be verified
    are let pass."""

    host: str
    port: int = 5400
    segment: str = "capture"
    algorithm: str = "none"
    keys: tuple[bytes, ...] = ()
    signers: Mapping[bytes, Sequence[bytes]] = field(default_factory=dict)
    required: bool = False
    payload: bool = True
    late: str = "drop"

    def checker(self) -> IntegrityChecker:
        """Make the integrity check. Raises ValueError for keys that do not fit the algorithm."""
        options = {"required": self.required, "accept_unverifiable": not self.keys and not self.signers}
        return make_checker(self.algorithm, self.keys, self.signers, **options, hmac=PreparedHmac)


class Summary(NamedTuple):
    """What was ingested."""

    journal_id: str
    rows: int
    files: int
    verdicts: dict[str, int]
    tally: CaptureCounts


class CaptureSet:
    """Captures of one host, read as one in the order of time: rotated ones one after the other, overlapping ones side
    by side. ``tally`` counts what was read; ``sessions`` are its times, one for each period in which the clock was not
    set. Raises JournalError: unreadable, bad_capture."""

    def __init__(
        self, paths: Sequence[str], settings: CaptureSettings, on_progress: Progress = lambda _done, _total: None
    ) -> None:
        self.tally = CaptureCounts()
        self.sessions: list[RecorderSession] = []
        self._paths, self._settings, self._on_progress = paths, settings, on_progress
        self._done = self._total = 0
        begun = []
        for number, path in enumerate(paths):
            capture = Capture(path, self.tally)
            self._total += capture.size
            if capture.first is not None:
                begun.append((capture.first.stamp, number, capture))
        self._captures = sorted(begun, key=itemgetter(0, 1))

    def journal_id(self) -> str:
        """Name the journal after the beginning of the first capture, so that one that has grown keeps its name. Raises
        JournalError: no_bccn."""
        if not self._captures:
            raise self._no_bccn()
        first, _, capture = self._captures[0]
        digest = blake2b(capture.sample, digest_size=4, key=self._settings.host.encode()[:64]).digest()
        return file_names.journal_id(first // 1000, int.from_bytes(digest, "big"))

    def parts(self) -> Iterator[list[Observation]]:
        """Yield the rows of all datagrams, some at a time. Raises JournalError: no_bccn."""
        judge, number = Judge(self._settings), FIRST
        part: list[Observation] = []
        for packet in self.packets():
            self._note_time(packet.stamp // 1000, number)
            datagram = unwrap(packet, self._settings.port, self.tally)
            if datagram is not None:
                part.append(judge.judge(datagram))
                self.sessions[-1].last = number
                number += 1
            if len(part) == PART:
                yield part
                part = []
        if number == FIRST:
            raise self._no_bccn()
        if part:
            yield part

    def _note_time(self, ts: int, number: int) -> None:
        """Extend the session, or begin one before the record with this number if the clock was set."""
        if self.sessions and -BACKWARDS <= (ts - self.sessions[-1].end) * 1e-6 <= LONGEST_SWEEP:
            self.sessions[-1].end = max(self.sessions[-1].end, ts)
        else:
            self.sessions.append(RecorderSession(ts, ts, first=number, last=number - 1))

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of all datagrams as tables. Raises JournalError: no_bccn."""
        name, number = self.journal_id(), FIRST
        for part in self.parts():
            yield files.obs_table(self._settings.host, name, number, part)
            number += len(part)

    def packets(self) -> Iterator[Packet]:
        """Yield all packets in the order of time; those of a capture stay in their order, also if the clock was set.
        A capture is open only from its first packet to its last."""
        placed = (self._placed(capture) for _, _, capture in self._captures)
        return (packet for _, packet in heapq.merge(*placed, key=itemgetter(0)))

    def _placed(self, capture: Capture) -> Iterator[tuple[int, Packet]]:
        """Yield the packets of a capture, each behind the latest stamp so far."""
        assert capture.first is not None  # noqa: S101 -- the others are not in the set
        latest = capture.first.stamp
        yield latest, capture.first
        for packet in islice(capture.packets(self._on_bytes), 1, None):
            latest = max(latest, packet.stamp)
            yield latest, packet

    def _on_bytes(self, count: int) -> None:
        self._done += count
        self._on_progress(self._done, self._total)

    def _no_bccn(self) -> JournalError:
        tally, port = self.tally, self._settings.port
        captures = self._paths[0] if len(self._paths) == 1 else f"{len(self._paths)} captures"
        links = f", of unknown link types {sorted(tally.links)}" if tally.links else ""
        why = f"{captures}: no datagram for UDP port {port} among {tally.packets} packets{links}"
        if tally.truncated + tally.fragments + tally.malformed:
            why += f" ({tally.truncated} cut off, {tally.fragments} in fragments, {tally.malformed} malformed)"
        return JournalError(
            "no_bccn", why, "set --port to the port of BCCN in the capture; capture with tcpdump -s 0 'udp'"
        )


class Judge:
    """The parts of a daemon that give verdicts, in its order, at the times of the captures."""

    def __init__(self, settings: CaptureSettings) -> None:
        self._sources = TrackerTable(TrackerLimits(late=settings.late))
        self._liveness = Liveness(self._sources, HeartbeatRules(), 0.0)
        routes: Routes[int] = Routes(DIALECTS["path"])
        routes.join(0, b"capture")
        routes.subscribe(0, frames.TAP)
        self._counters = SegmentCounters(settings.segment)
        self._payload = settings.payload
        self._ingress = Ingress(
            settings.checker(),
            self._sources,
            AnonymousDedup(self._sources.limits),
            routes,
            ceiling=MAX_RECEIVE,
            on_heartbeat=self._liveness.on_heartbeat,
        )
        self._now = self._swept = 0.0
        #: a stamp, and the time of this clock for it
        self._origin: tuple[int, float] | None = None

    def judge(self, datagram: Datagram) -> Observation:
        self._pass_time(datagram.stamp)
        deliveries = Deliveries()
        arrival = Arrival(self._counters, [datagram.peer], self._now, datagram.stamp)
        self._ingress.feed(deliveries, arrival, [datagram.payload])
        # The tap's subscriber is the last, and here the only one.
        _, key, payload = frames.read(deliveries.frames[deliveries.count - 1])
        row = observe(*frames.read_tapped(key, payload))
        return row if self._payload else row._replace(payload=None)

    def _pass_time(self, stamp: int) -> None:
        """Move the clock, which never goes back, to a stamp, with the sweeps on the way."""
        if self._origin is None:
            self._origin = stamp, 0.0
        since, then = self._origin
        now = then + (stamp - since) * 1e-9
        if now < self._now - BACKWARDS:  # the captured host's clock was set back
            now = self._now
            self._origin = stamp, now
        elif now > self._now + LONGEST_SWEEP:  # years of a clock that was set, or of nothing
            now = self._now + LONGEST_SWEEP
            self._origin = stamp, now
        self._now = max(now, self._now)
        while (left := self._now - self._swept) >= SWEEP:
            self._swept += COARSE_SWEEP if left > 60 else SWEEP
            while any([self._sources.sweep(self._swept), self._liveness.sweep(self._swept)]):
                pass
        self._liveness.changes = []


class _Stage:
    """Files of one journal, kept in a hidden folder until all of them are complete."""

    def __init__(self, filesystem: pafs.FileSystem, root: str, host: str, journal: str) -> None:
        self._filesystem, self._root = filesystem, root
        self._host, self._journal = host, journal
        self._folder = f"{root}/{file_names.UNFINISHED}ingest-{host}-{journal}"
        self.records = RecordWriter(filesystem, self._folder, host, journal, FIRST)

    def publish(self, sessions: Sequence[RecorderSession]) -> None:
        """Move all files to their places, and remove those of an earlier reading of these captures."""
        self.records.finish()
        write_sessions(self._filesystem, self._folder, self._host, self._journal, VERSION, sessions)
        listed = list_files(self._filesystem, self._root, hosts=[self._host])
        before = {file.name.path for file in listed if file.name.journal_id == self._journal}
        for path in (*self.records.paths, file_names.sessions_path(self._host, self._journal)):
            self._filesystem.create_dir(f"{self._root}/{path}".rpartition("/")[0], recursive=True)
            self._filesystem.move(f"{self._folder}/{path}", f"{self._root}/{path}")
        for path in before - set(self.records.paths):
            self._filesystem.delete_file(f"{self._root}/{path}")

    def discard(self) -> None:
        """Remove what was not published."""
        with suppress(OSError):
            if self._filesystem.get_file_info(self._folder).type == pafs.FileType.Directory:
                self._filesystem.delete_dir(self._folder)


def ingest(
    paths: Sequence[str], journal: str, settings: CaptureSettings, on_progress: Progress = lambda _done, _total: None
) -> Summary:
    """Write the datagrams in captures of one host to a journal. Raises JournalError: bad_capture, unreadable, no_bccn,
    bad_host, unwritable; and then the journal is as it was."""
    if not file_names.is_host(settings.host):
        raise JournalError(
            "bad_host", f"{settings.host!r} cannot name a host", "use letters, digits, '_', '.' and '-', at most 64"
        )
    captures = CaptureSet(paths, settings, on_progress)
    name = captures.journal_id()
    verdicts: Counter[str] = Counter()
    try:
        filesystem, root = files.open_root(journal)
        stage = _Stage(filesystem, root, settings.host, name)
        stage.discard()  # what a killed run has left
        try:
            for part in captures.parts():
                verdicts.update(row.verdict for row in part)
                stage.records.add(part)
            captures.sessions[-1].socket_drops = captures.tally.dropped
            stage.publish(captures.sessions)
        finally:
            stage.discard()
    except (OSError, pa.ArrowInvalid) as error:
        raise JournalError("unwritable", f"cannot write to {journal}: {error}", "see --out") from error
    return Summary(name, verdicts.total(), len(stage.records.paths), verdicts, captures.tally)
