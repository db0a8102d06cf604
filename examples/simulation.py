"""A fleet of hosts with known faults: what every receiver would have recorded, and the truth about it.

Invariant: the same fleet gives the same rows on any machine at any time: no clock, and no randomness except from
`Fleet.seed`. Verdicts are those of the daemon's own trackers (`core.tracking`); the truth comes from what was sent and
which hosts received it, never from verdicts or epochs.

Times in a fleet are seconds since its start, on a clock that is right; `Fleet.offsets` says by how much each host's own
clock is ahead of it.
"""

from __future__ import annotations

import random
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from bccnd.core.formats.tap_record import Observation, seq_key
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import TICK, HeartbeatRules, Liveness
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.wire.bccn1 import HEARTBEAT, UNKNOWN_SRC
from bccnd.core.wire.directed_targets import FORM_NAMES, PLAIN, form_of, is_directed
from bccnd.core.wire.verdicts import LAST_ACCEPTED, NAMES, NOT_ADDRESSED
from bccnd.fleet.report_format import CHANNEL, SentRun, head_line, sent_line
from bccnd.journal import file_names, files, schema
from examples.fleet_model import Down, Fleet, Late, Loss, Recording, Source

#: microseconds
SECOND: Final = 1_000_000
#: microseconds from a sender to a receiver: at least, and what is added at random
DELAY: Final = 100
JITTER: Final = 200
#: rows of a file
FILE_ROWS: Final = 50_000
#: microseconds between the copies of a message
SPACING: Final = 2_000
#: where forged datagrams come from
FORGER: Final = "192.0.2.66"
#: bytes of a message
SIZE: Final = 80
#: bytes of ``BCCN1[123:hmac=0123456789abcdef]``, and of the separators behind it
ENVELOPE: Final = 32
SEPARATORS: Final = 3


class Sent(NamedTuple):
    """A message as it was sent: ``at`` in microseconds since the start of the fleet, ``run`` counts the starts of its
    source from 1, ``lost`` has a bit for each copy that was lost at the sender."""

    at: int
    source: int
    run: int
    seq: int
    chan: str
    port: int
    lost: int


class Heard(NamedTuple):
    """A row of a journal; ``message`` is its index in `Simulation.sent`, -1 if forged."""

    journal_id: str
    rec_no: int
    row: Observation
    message: int


class Session(NamedTuple):
    """A row of sessions, times in microseconds since 1970 by the host's own clock."""

    journal_id: str
    start_ts: int
    end_ts: int


class _Arrival(NamedTuple):
    at: int
    order: int
    message: int


class Simulation:
    """What the hosts of a fleet send and record."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.sent: list[Sent] = sorted(_send(fleet))
        self._losses = [(loss, _spans(loss)) for loss in fleet.losses if loss.receiver is not None]
        self._moments: dict[int, list[Sent]] = {}

    def told(self, report: int) -> list[tuple[int, int, int, int]]:
        """Return what a report says was sent, the message with this index: of each source of its host the source, its
        run, the first seq of that, and the next one."""
        message = self.sent[report]
        host = self.fleet.sources[message.source].host
        found = []
        for index, source in enumerate(self.fleet.sources):
            if source.host == host and source.own:
                if index not in self._moments:
                    self._moments[index] = [each for each in self.sent if each.source == index]
                its = self._moments[index]
                place = bisect_left(its, message.at, key=lambda each: each.at)
                if place:
                    last = its[place - 1]
                    first = bisect_left(its, last.run, key=lambda each: each.run)
                    found.append((index, last.run, its[first].seq, last.seq + 1))
        return found

    def _payload(self, report: int) -> bytes:
        lines = [
            sent_line(SentRun(self.fleet.sources[source].src, first, following))
            for source, _, first, following in self.told(report)
        ]
        return head_line("simulated", 10_000, 1, 1) + b"".join(lines)

    def segment(self, host: str) -> str:
        return self.fleet.segments.get(host, "lan")

    def recordings(self, host: str) -> list[Recording]:
        """When a host records: its recordings without the time in which it was down."""
        kept = list(self.fleet.recordings.get(host, (Recording(),)))
        for down in self.fleet.downs:
            if down.host == host:
                kept = [part for recording in kept for part in _without(recording, down)]
        return [each._replace(end=min(each.end, self.fleet.duration)) for each in kept]

    def journals(self, host: str) -> list[str]:
        """The journal of each of a host's recordings."""
        found: list[str] = []
        for number, recording in enumerate(self.recordings(host)):
            if recording.fresh or not found:
                began = self._clock(host, int(recording.start * SECOND))
                found.append(file_names.journal_id(began, zlib.crc32(f"{self.fleet.seed}/{host}/{number}".encode())))
            else:
                found.append(found[-1])
        return found

    def sessions(self, host: str) -> list[Session]:
        """When a host was listening."""
        return [
            Session(
                journal,
                self._clock(host, int(recording.start * SECOND)),
                self._clock(host, int(recording.end * SECOND)),
            )
            for journal, recording in zip(self.journals(host), self.recordings(host), strict=True)
        ]

    def heard(self, host: str) -> Iterator[Heard]:
        """Yield what a host records, in order, with the message of each row."""
        recordings, journals = self.recordings(host), self.journals(host)
        daemon = _Daemon(self.fleet, host)
        current, end, journal, number = -1, 0, "", 0
        starts = [int(recording.start * SECOND) for recording in recordings]
        for arrival in self._arrivals(host):
            place = bisect_right(starts, arrival.at) - 1
            if place > current:
                if any(recording.fresh for recording in recordings[current + 1 : place + 1]):
                    daemon = _Daemon(self.fleet, host)
                if journals[place] != journal:
                    journal, number = journals[place], 0
                current, end = place, int(recordings[place].end * SECOND)
            row = self._row(daemon, host, arrival)
            if place >= 0 and arrival.at < end:
                yield Heard(journal, number, row, max(arrival.message, -1))
                number += 1

    def _clock(self, host: str, at: int) -> int:
        """Convert a time of the fleet to the host's clock."""
        return self.fleet.start * SECOND + at + round(self.fleet.offsets.get(host, 0.0) * SECOND)

    def _arrivals(self, host: str) -> list[_Arrival]:
        """List the datagrams that reach a host, in order; forged ones are numbered downward from -1."""
        fleet = self.fleet
        chance = random.Random(f"{fleet.seed}/{host}")
        losses = [(loss, spans) for loss, spans in self._losses if loss.receiver == host]
        heard = [self.segment(source.host) == self.segment(host) for source in fleet.sources]
        down = [(int(each.start * SECOND), int(each.end * SECOND)) for each in fleet.downs if each.host == host]
        found: list[_Arrival] = []
        for index, message in enumerate(self.sent):
            source = fleet.sources[message.source]
            if not heard[message.source]:
                continue
            for copy in range(source.copies):
                at = message.at + int(copy * SPACING) + DELAY + chance.randrange(JITTER)
                gone = any(_hits(loss, spans, source.src, message, chance) for loss, spans in losses)
                if gone or message.lost >> copy & 1 or any(start <= at < end for start, end in down):
                    continue
                at += sum(_delay(late, host, source.src, message) for late in fleet.lates)
                found.append(_Arrival(at, copy, index))
        for number, forged in enumerate(fleet.forged):
            for index in range(forged.datagrams):
                at = int((forged.at + forged.seconds * index / forged.datagrams) * SECOND) + DELAY
                found.append(_Arrival(at, 0, -1 - number))
        found.sort()
        return found

    def _row(self, daemon: _Daemon, host: str, arrival: _Arrival) -> Observation:
        fleet = self.fleet
        at = self._clock(host, arrival.at)
        if arrival.message < 0:
            forged = fleet.forged[-1 - arrival.message]
            key = seq_key(arrival.at)
            where = (at, self.segment(host), FORGER, 5400, "integrity_failed", "BCCN1", "hmac", forged.src, key)
            return Observation(*where, 0, "forged", FORM_NAMES[PLAIN], 200, None)
        message = self.sent[arrival.message]
        source = fleet.sources[message.source]
        number = fleet.hosts.index(source.host) + 1
        address = f"10.0.{number >> 8}.{number & 255}"
        verdict, epoch = daemon.judge(message, address, arrival.at / SECOND)
        size = 0 if message.chan.startswith("heartbeat/") else SIZE
        length = ENVELOPE + len(source.src) + len(str(message.seq)) + len(message.chan) + SEPARATORS + size
        return Observation(
            at,
            self.segment(host),
            address,
            message.port,
            verdict,
            "BCCN1",
            "hmac",
            source.src,
            seq_key(message.seq),
            epoch,
            message.chan,
            FORM_NAMES[form_of(message.chan.encode())],
            length,
            self._payload(arrival.message) if message.chan.startswith(CHANNEL.decode("ascii")) else None,
        )


class _Daemon:
    """The trackers of a host's daemon."""

    def __init__(self, fleet: Fleet, host: str) -> None:
        self._names = [source.src.encode() for source in fleet.sources]
        self._beats = [HEARTBEAT + name for name in self._names]
        self._sources = TrackerTable(TrackerLimits())
        self._anonymous = AnonymousDedup(self._sources.limits)
        self._liveness: Liveness | None = None
        self._swept = 0.0
        for name, source in zip(self._names, fleet.sources, strict=True):
            if source.own and source.host == host:
                self._sources.claim(name).next = 2**64 - 1

    def judge(self, message: Sent, address: str, now: float) -> tuple[str, int]:
        """Return the verdict on a datagram, and the daemon's epoch of its source."""
        if self._liveness is None:
            self._liveness = Liveness(self._sources, HeartbeatRules(), now)
            self._swept = now
        while self._swept + TICK <= now:  # the daemon's timer runs without traffic, too
            self._swept += TICK
            while self._liveness.sweep(self._swept):
                pass
        src, chan = self._names[message.source], message.chan.encode()
        if src != UNKNOWN_SRC:
            verdict = self._sources.judge(src, message.seq, now)
        else:
            body = b"%b:%d:%b|" % (src, message.seq, chan)
            verdict = self._anonymous.judge(f"{address}:{message.port}", body, now)
        if verdict <= LAST_ACCEPTED:
            if chan == self._beats[message.source]:
                self._liveness.on_heartbeat(src, now)
            if is_directed(chan):
                verdict = NOT_ADDRESSED
        return NAMES[verdict], self._sources.epoch(src)


def write(fleet: Fleet, journal: str, *, file_rows: int = FILE_ROWS) -> Simulation:
    """Write a fleet's journal below the address ``journal``, in files of at most ``file_rows`` rows. Raises OSError."""
    simulation = Simulation(fleet)
    filesystem, root = files.open_root(journal)
    for host in fleet.hosts:
        sessions = simulation.sessions(host)
        counts = [0] * len(sessions)
        starts = [session.start_ts for session in sessions]
        for name, first, rows in _chunks(simulation.heard(host), file_rows):
            place = file_names.ObsFile(host, file_names.day_of(rows[0].ts), name, first)
            files.write_records(filesystem, root, place.path, files.obs_table(host, name, first, rows))
            for row in rows:
                counts[bisect_right(starts, row.ts) - 1] += 1
        for name in dict.fromkeys(session.journal_id for session in sessions if host not in fleet.sessionless):
            other = {"host": host, "socket_drops": 0, "tap_gaps": 0, "version": "simulated"}
            mine, number = [], 0
            for session, count in zip(sessions, counts, strict=True):
                if session.journal_id == name:
                    numbers = {"first_rec_no": number, "last_rec_no": number + count - 1}
                    mine.append({**other, **session._asdict(), **numbers})
                    number += count
            table = pa.Table.from_pylist(mine, schema=schema.SESSIONS)
            files.write(filesystem, root, file_names.sessions_path(host, name), table)
    return simulation


def _chunks(heard: Iterable[Heard], limit: int) -> Iterator[tuple[str, int, list[Observation]]]:
    """Yield up to ``limit`` rows of one journal and day, with their journal and the number of the first."""
    rows: list[Observation] = []
    journal, first, day = "", 0, -1
    for each in heard:
        its_day = each.row.ts // (86_400 * SECOND)
        if rows and (each.journal_id != journal or its_day != day or len(rows) >= limit):
            yield journal, first, rows
            rows = []
        if not rows:
            journal, first, day = each.journal_id, each.rec_no, its_day
        rows.append(each.row)
    if rows:
        yield journal, first, rows


def _send(fleet: Fleet) -> Iterator[Sent]:
    """Yield all messages, source by source."""
    losses = [(loss, _spans(loss)) for loss in fleet.losses if loss.receiver is None]
    for index, source in enumerate(fleet.sources):
        chance = random.Random(f"{fleet.seed}/{source.src}/{index}")
        restarts = sorted(source.restarts)
        seq = _start(fleet, source.start, source.since)
        run, port = 1, source.port
        for at, chan in _plan(fleet, source, index):
            while run <= len(restarts) and restarts[run - 1].at * SECOND <= at:
                restart = restarts[run - 1]
                seq = _start(fleet, restart.start, restart.at)
                port = restart.port or port + 1
                run += 1
            message = Sent(at, index, run, seq, chan, port, 0)
            seq += 1
            lost = 0
            for copy in range(source.copies):
                if any(_hits(loss, spans, source.src, message, chance) for loss, spans in losses):
                    lost |= 1 << copy
            yield message._replace(lost=lost)


def _start(fleet: Fleet, start: int | None, at: float) -> int:
    return fleet.start * SECOND + int(at * SECOND) if start is None else start


def _plan(fleet: Fleet, source: Source, index: int) -> list[tuple[int, str]]:
    """List when a source sends, and on which channel. Sources have different phases, so that not all send at once."""
    end = min(source.until, fleet.duration)
    phase = 0.01 + index * 0.000_37 % 0.05
    plan: list[tuple[int, str]] = []
    if source.rate > 0:
        count = int((end - source.since - phase) * source.rate) + 1
        plan += [
            (
                int((source.since + phase + number / source.rate) * SECOND),
                source.channels[number % len(source.channels)],
            )
            for number in range(count)
        ]
    if source.heartbeat > 0:
        count = int((end - source.since) / source.heartbeat) + 1
        beat = f"heartbeat/{source.src}"
        plan += [(int((source.since + 0.003 + number * source.heartbeat) * SECOND), beat) for number in range(count)]
    for burst in source.bursts:
        plan += [
            (int((burst.at + burst.seconds * number / burst.messages) * SECOND), burst.chan or source.channels[0])
            for number in range(burst.messages)
        ]
    down = [(each.start * SECOND, each.end * SECOND) for each in fleet.downs if each.host == source.host]
    stop = end * SECOND
    return sorted(each for each in plan if each[0] < stop and not any(low <= each[0] < high for low, high in down))


def _spans(loss: Loss) -> tuple[float, float]:
    return loss.start * SECOND, loss.end * SECOND


def _hits(loss: Loss, spans: tuple[float, float], src: str, message: Sent, chance: random.Random) -> bool:
    if (loss.src is not None and loss.src != src) or not spans[0] <= message.at < spans[1]:
        return False
    if loss.every:
        return message.seq % loss.every == 0
    return chance.random() < loss.probability


def _delay(late: Late, host: str, src: str, message: Sent) -> int:
    """Return the microseconds by which a message arrives later."""
    if late.receiver != host or late.src != src or not late.start * SECOND <= message.at < late.end * SECOND:
        return 0
    return int(late.delay * SECOND) if message.seq % late.every == 0 else 0


def _without(recording: Recording, down: Down) -> Sequence[Recording]:
    """Split a recording around the time in which the host was down."""
    if down.end <= recording.start or recording.end <= down.start:
        return [recording]
    kept = []
    if recording.start < down.start:
        kept.append(recording._replace(end=down.start))
    if down.end < recording.end:
        kept.append(Recording(down.end, recording.end))
    return kept
