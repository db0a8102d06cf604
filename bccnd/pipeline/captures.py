"""Packet captures -> a journal: what a host without a daemon has seen, judged as a daemon there would have judged it.

Law: every datagram goes through the daemon's own code, in the order and at the time of its stamps. The same captures
make the same files, byte for byte in their rows and by the same names; a capture that cannot be read to its end leaves
the journal as it was. Memory is bounded: captures are read piece by piece, files are written a part at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from bccnd.core import frames
from bccnd.core.bccn1 import MAX_RECEIVE
from bccnd.core.capture import Datagram, Packet, Reader, Tally, unwrap
from bccnd.core.counters import SegmentCounters
from bccnd.core.dedup import DedupRules, Sources
from bccnd.core.ingress import Ingress
from bccnd.core.integrity import Door, make_door
from bccnd.core.liveness import Liveness, LivenessRules
from bccnd.core.nameless import Nameless
from bccnd.core.observe import Observation, observe
from bccnd.core.patterns import DIALECTS
from bccnd.core.routes import Routes
from bccnd.errors import JournalError
from bccnd.journal import files, layout, schema
from bccnd.version import VERSION

#: bytes read at once
CHUNK: Final = 1 << 18
#: bytes of the first capture that its journal is named after
SAMPLE: Final = 1 << 16
#: rows that are objects at the same time; a few hundred bytes each
PART: Final = 10_000
#: rows of a file; some 20 MB on disk, and what one task of Spark reads
ROWS: Final = 250_000
#: the number of the first record, as the recorder counts
FIRST: Final = 1
#: seconds between two looks at what time alone changes, as the daemon has them
SWEEP: Final = 0.25
#: and where nothing came for longer than a minute; still far below what counts as having been asleep
COARSE_SWEEP: Final = 1.0
#: seconds after which nothing is left that time could change: a day, when trackers expire, and an hour
LONGEST_SWEEP: Final = 90_000.0
#: seconds by which stamps may go back without the clock having been set: interfaces are not read in strict order
BACKWARDS: Final = 1.0

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CaptureSettings:
    """Whose captures these are, and how to judge what is in them.

    Without keys and signers, sums that nobody can verify are let pass.
    """

    host: str
    port: int = 5400
    segment: str = "capture"
    algorithm: str = "none"
    keys: tuple[bytes, ...] = ()
    signers: Mapping[bytes, Sequence[bytes]] = field(default_factory=dict)
    required: bool = False
    payload: bool = True
    rules: DedupRules = field(default_factory=DedupRules)

    def door(self) -> Door:
        """Raises ValueError for keys that do not go with the algorithm."""
        open_to_all = not self.keys and not self.signers
        return make_door(
            self.algorithm, self.keys, self.signers, required=self.required, accept_unverifiable=open_to_all
        )


class Summary(NamedTuple):
    """What was ingested."""

    journal_id: str
    rows: int
    files: int
    verdicts: dict[str, int]
    tally: Tally


# -- what is in captures


class _Capture:
    """One file, read in pieces; its packets, one after the other."""

    def __init__(self, where: str, tally: Tally, on_bytes: Callable[[int], None] = lambda _: None) -> None:
        self.where = where
        self._tally = tally
        self._on_bytes = on_bytes

    def packets(self) -> Generator[Packet, None, None]:
        reader = Reader(self.where, self._tally)
        try:
            with _open(self.where) as raw, _unpacked(raw) as stream:
                at = 0
                while piece := stream.read(CHUNK):
                    yield from reader.feed(piece)
                    done = raw.tell()
                    self._on_bytes(done - at)
                    at = done
        except pa.ArrowInvalid as error:
            raise JournalError("bad_capture", f"{self.where} cannot be unpacked: {error}", "copy it again") from error
        except OSError as error:
            # what pyarrow says of a compressed file that was cut off
            raise JournalError("unreadable", f"cannot read {self.where}: {error}", "see whether it is whole") from error
        reader.finish()

    def first_stamp(self) -> int | None:
        """When its first packet came; None where there is none. Raises JournalError."""
        packets = _Capture(self.where, Tally()).packets()
        first = next(packets, None)
        packets.close()
        return None if first is None else first.stamp

    def sample(self) -> bytes:
        with _open(self.where) as raw, _unpacked(raw) as stream:
            found: bytes = stream.read(SAMPLE)
            return found


def _open(where: str) -> Any:
    """Raises JournalError: unreadable."""
    try:
        filesystem, path = files.open_root(where)
        return filesystem.open_input_file(path)
    except (OSError, pa.ArrowInvalid) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise JournalError("unreadable", f"cannot read {where}: {why}", "name a capture that can be read") from error


def _unpacked(raw: Any) -> Any:
    """What a file holds, also one that was compressed by gzip."""
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    return pa.CompressedInputStream(raw, "gzip") if packed else raw


def _size(where: str) -> int:
    filesystem, path = files.open_root(where)
    return int(filesystem.get_file_info(path).size or 0)


class CaptureSet:
    """Captures of one host, read as one, in the order of time: one after the other where they were rotated, side by
    side where they overlap. Raises JournalError for what is no capture.
    """

    def __init__(self, paths: Sequence[str], tally: Tally, on_progress: Progress = lambda _done, _total: None) -> None:
        self._tally = tally
        self._done = 0
        self._total = 0
        self._on_progress = on_progress
        begun = []
        for number, path in enumerate(paths):
            capture = _Capture(path, tally, self._on_bytes)
            first = capture.first_stamp()
            self._total += _size(path)
            if first is not None:
                begun.append((first, number, capture))
        self._captures = sorted(begun, key=lambda one: one[:2])

    @property
    def first_stamp(self) -> int | None:
        """When the first packet of all came, in nanoseconds since 1970."""
        return self._captures[0][0] if self._captures else None

    def journal_id(self, host: str) -> str:
        """A name for the journal of these captures: from the beginning of the first one and nothing else, so that the
        same capture has the same name, also if it has grown since."""
        first, _, capture = self._captures[0]
        digest = blake2b(capture.sample(), digest_size=4, key=host.encode()[:64]).digest()
        return layout.journal_id(first // 1000, int.from_bytes(digest, "big"))

    def _on_bytes(self, count: int) -> None:
        self._done += count
        self._on_progress(self._done, self._total)

    def packets(self) -> Iterator[Packet]:
        """All packets. A capture is opened when its time has come and closed behind its last packet, so that a thousand
        rotated ones cost no more than one."""
        waiting = list(reversed(self._captures))
        heap: list[tuple[int, int, Packet, Iterator[Packet]]] = []
        while waiting or heap:
            if waiting and (not heap or waiting[-1][0] <= heap[0][0]):
                _, number, capture = waiting.pop()
                self._push(heap, number, capture.packets(), 0)
                continue
            stamp, number, packet, packets = heapq.heappop(heap)
            yield packet
            self._push(heap, number, packets, stamp)

    @staticmethod
    def _push(
        heap: list[tuple[int, int, Packet, Iterator[Packet]]], number: int, packets: Iterator[Packet], least: int
    ) -> None:
        """The next packet of a capture; one whose stamp goes back comes in its place all the same."""
        following = next(packets, None)
        if following is not None:
            heapq.heappush(heap, (max(following.stamp, least), number, following, packets))


# -- how it is judged


class Judge:
    """The parts of a daemon that give verdicts, in its order, at the time of the captures."""

    def __init__(self, settings: CaptureSettings) -> None:
        self._sources = Sources(settings.rules)
        self._liveness = Liveness(self._sources, LivenessRules(), 0.0)
        routes: Routes[int] = Routes(DIALECTS["path"])
        routes.join(0, b"capture")
        routes.subscribe(0, frames.TAP)
        self._counters = SegmentCounters(settings.segment)
        self._payload = settings.payload
        self._ingress = Ingress(
            settings.door(),
            self._sources,
            Nameless(settings.rules.horizon),
            routes,
            ceiling=MAX_RECEIVE,
            on_heartbeat=self._liveness.beat,
        )
        self._now = self._swept = 0.0
        #: the stamp at which our clock stood at the other, and the stamp of the datagram before
        self._origin: tuple[int, float] | None = None

    def judge(self, datagram: Datagram) -> Observation:
        """The row of the next datagram."""
        self._pass_time(datagram.stamp)
        deliveries = self._ingress.feed(self._counters, [datagram.payload], [datagram.peer], self._now, datagram.stamp)
        # Who listens to the tap comes last, and is all there is.
        _, key, payload = frames.read(deliveries[-1][1])
        row = observe(*frames.read_tapped(key, payload))
        return row if self._payload else row._replace(payload=None)

    def _pass_time(self, stamp: int) -> None:
        """Let our clock, which never goes back, follow the stamps."""
        if self._origin is None:
            self._origin = stamp, 0.0
        since, then = self._origin
        now = then + (stamp - since) * 1e-9
        if now < self._now - BACKWARDS:  # their clock was set back
            self._origin = stamp, self._now
        self._now = max(now, self._now)
        self._sweep()

    def _sweep(self) -> None:
        now = self._now
        left = now - self._swept
        if left > LONGEST_SWEEP:
            self._swept, left = now - LONGEST_SWEEP, LONGEST_SWEEP
        while left >= SWEEP:
            self._swept += COARSE_SWEEP if left > 60 else SWEEP
            while any([self._sources.sweep(self._swept), self._liveness.sweep(self._swept)]):
                pass
            left = now - self._swept
        self._liveness.changes = []


def observations(packets: Iterator[Packet], settings: CaptureSettings, tally: Tally) -> Iterator[Observation]:
    """The rows of all datagrams in packets."""
    judge = Judge(settings)
    for packet in packets:
        datagram = unwrap(packet, settings.port, tally)
        if datagram is not None:
            yield judge.judge(datagram)


def parts(rows: Iterator[Observation], most: int = PART) -> Iterator[list[Observation]]:
    """Rows in lists of at most so many, each of one day."""
    part: list[Observation] = []
    day = ""
    for row in rows:
        of = layout.day_of(row.ts)
        if part and (len(part) == most or of != day):
            yield part
            part = []
        day = of
        part.append(row)
    if part:
        yield part


# -- into a journal


class _Span:
    """When packets came, the first and the last of all; whoever captures was listening in between."""

    def __init__(self) -> None:
        self.first = self.last = -1

    def watch(self, packets: Iterator[Packet]) -> Iterator[Packet]:
        for packet in packets:
            self.first = packet.stamp if self.first < 0 else min(self.first, packet.stamp)
            self.last = max(self.last, packet.stamp)
            yield packet


class _Writer:
    """Files of one journal, written beside their places until all of them are whole."""

    def __init__(self, filesystem: pafs.FileSystem, root: str, host: str, journal: str) -> None:
        self._filesystem = filesystem
        self._root = root
        self._host = host
        self._journal = journal
        self._stage = f"{root}/{layout.UNFINISHED}ingest-{host}-{journal}"
        self._waiting: list[pa.Table] = []
        self._day = ""
        self._first = FIRST
        self.rows = 0
        self.paths: list[str] = []

    def add(self, part: list[Observation]) -> None:
        """Rows of one day."""
        day = layout.day_of(part[0].ts)
        if self._waiting and (day != self._day or FIRST + self.rows - self._first + len(part) > ROWS):
            self._end_file()
        self._day = day
        self._waiting.append(files.obs_table(self._host, self._journal, FIRST + self.rows, part))
        self.rows += len(part)

    def _end_file(self) -> None:
        if self._waiting:
            path = layout.ObsFile(self._host, self._day, self._journal, self._first).path
            self._write(path, pa.concat_tables(self._waiting))
        self._waiting, self._first = [], FIRST + self.rows

    def _write(self, path: str, table: pa.Table) -> None:
        files.write(self._filesystem, self._stage, path, table)
        self.paths.append(path)

    def finish(self, start: int, end: int, drops: int) -> None:
        """Put everything in its place, and take away what a longer or another reading of these captures has left."""
        self._end_file()
        row = [self._host, self._journal, start, end, drops, 0, VERSION]
        arrays = [pa.array([value], field.type) for value, field in zip(row, schema.SESSIONS, strict=True)]
        sessions = layout.sessions_path(self._host, self._journal)
        self._write(sessions, pa.Table.from_arrays(arrays, schema=schema.SESSIONS))
        before = self._of_before()
        for path in self.paths:
            self._filesystem.create_dir(f"{self._root}/{path}".rpartition("/")[0], recursive=True)
            self._filesystem.move(f"{self._stage}/{path}", f"{self._root}/{path}")
        for path in before - set(self.paths):
            self._filesystem.delete_file(f"{self._root}/{path}")
        self.discard()

    def _of_before(self) -> set[str]:
        """The files of this journal that are there already."""
        folder = f"{self._root}/{layout.OBS}/host={self._host}"
        found = self._filesystem.get_file_info(pafs.FileSelector(folder, recursive=True, allow_not_found=True))
        paths = {one.path.removeprefix(f"{self._root}/") for one in found if one.type == pafs.FileType.File}
        return {path for path in paths if (name := layout.read_path(path)) and name.journal_id == self._journal}

    def discard(self) -> None:
        """Leave nothing behind of what is not finished."""
        with suppress(OSError):
            if self._filesystem.get_file_info(self._stage).type == pafs.FileType.Directory:
                self._filesystem.delete_dir(self._stage)


def ingest(
    paths: Sequence[str],
    journal: str,
    settings: CaptureSettings,
    on_progress: Progress = lambda _done, _total: None,
) -> Summary:
    """Write the datagrams in captures of one host to a journal.

    Raises JournalError: bad_capture, unreadable, no_bccn, bad_host, unwritable; and then the journal is as it was.
    """
    if not layout.is_host(settings.host):
        raise JournalError(
            "bad_host", f"{settings.host!r} cannot name a host", "take letters, digits, '_', '.' and '-', at most 64"
        )
    tally = Tally()
    captures = CaptureSet(paths, tally, on_progress)
    if captures.first_stamp is None:
        raise no_bccn(paths, settings.port, tally)
    name = captures.journal_id(settings.host)
    try:
        filesystem, root = files.open_root(journal)
    except (OSError, pa.ArrowInvalid) as error:
        raise JournalError("unwritable", f"cannot write to {journal}: {error}", "see --out") from error
    writer = _Writer(filesystem, root, settings.host, name)
    verdicts: dict[str, int] = {}
    span = _Span()
    try:
        writer.discard()
        for part in parts(observations(span.watch(captures.packets()), settings, tally)):
            for row in part:
                verdicts[row.verdict] = verdicts.get(row.verdict, 0) + 1
            writer.add(part)
        if not writer.rows:
            raise no_bccn(paths, settings.port, tally)
        writer.finish(span.first // 1000, span.last // 1000, tally.dropped)
    except OSError as error:
        raise JournalError("unwritable", f"cannot write to {journal}: {error}", "see --out") from error
    finally:
        writer.discard()
    return Summary(name, writer.rows, len(writer.paths) - 1, verdicts, tally)


def no_bccn(paths: Sequence[str], port: int, tally: Tally) -> JournalError:
    """There is nothing in these captures that could be a row."""
    what = paths[0] if len(paths) == 1 else f"{len(paths)} captures"
    links = f", of unknown link types {sorted(tally.links)}" if tally.links else ""
    why = f"{what}: no datagram for UDP port {port} among {tally.packets} packets{links}"
    broken = tally.truncated + tally.fragments + tally.malformed
    if broken:
        why += f" ({tally.truncated} cut off, {tally.fragments} in fragments, {tally.malformed} malformed)"
    return JournalError("no_bccn", why, "name the --port that BCCN has there; capture with tcpdump -s 0 'udp'")
