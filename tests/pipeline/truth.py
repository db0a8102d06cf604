"""The tables of a simulated fleet, from what was sent and what each receiver got.

No verdict of a receiver decides where a row belongs, and nothing of the pipeline is used; a row counts as a copy or as
late if its receiver says so.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any, NamedTuple

from bccnd.core.formats.tap_record import seq_key
from bccnd.journal.file_names import day_of
from examples.simulation import SECOND, Simulation

MINUTE = 60 * SECOND
ARRIVED = {"accepted", "reordered", "restart", "duplicate", "stale", "looped", "not_addressed"}
ACCEPTED = {"accepted", "reordered", "restart"}
LATE = {"stale", "duplicate"}


@dataclass
class Message:
    """What became of a message, over all receivers."""

    at: int
    chan: str
    first: int = 2**63
    accepted: int = 2**63
    copies: int = 0
    seen: set[str] = field(default_factory=set)
    verdicts: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    length: int = 0
    gap: int = 0
    listening: set[str] = field(default_factory=set)


class Place(NamedTuple):
    """A message's number within what is the same epoch for all."""

    src: str
    epoch: int
    key: int


def _skipped(before: tuple[int, int] | None, now: tuple[int, int]) -> int | None:
    """The numbers over which a source has jumped."""
    return None if before is None or now[0] < before[1] else now[0] - before[1] - 1


class Tail(NamedTuple):
    """The end of an epoch on a day: numbers up to ``key`` were sent, as a report says that was sent ``at``, and
    accepted first at a time ``first``."""

    key: int
    first: int
    at: int
    lost: int = 0


class Truth:
    """All tables, as sets of plain rows: numbers of epochs are 1, 2, ... and sets of receivers are sets of hosts."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.sources = {source.src: index for index, source in enumerate(simulation.fleet.sources)}
        self.messages: dict[Place, Message] = {}
        self.dup: Counter[tuple[str, str, int, int]] = Counter()
        self.hosts: dict[str, set[str]] = defaultdict(set)
        self._recorded: set[tuple[str, str]] = set()
        self._spans: dict[tuple[str, str], tuple[int, int]] = {}
        heard = self._listen()
        self.number = self._number(heard)
        self._settle(heard)

    def _listen(self) -> dict[int, Message]:
        """Read what each receiver has recorded."""
        simulation = self.simulation
        messages: dict[int, Message] = {}
        self._copies: list[tuple[str, int, int]] = []
        for host in simulation.fleet.hosts:
            for observed in simulation.heard(host):
                row = observed.row
                ts = row.ts - self._wrong(host)
                day = day_of(ts)
                self.hosts[day].add(host)
                self._recorded.add((day, host))
                low, high = self._spans.get((host, observed.journal_id), (ts, ts))
                self._spans[host, observed.journal_id] = min(low, ts), max(high, ts)
                if observed.message < 0 or row.verdict not in ARRIVED or row.src == "?":
                    continue
                sent = simulation.sent[observed.message]
                message = messages.setdefault(observed.message, Message(sent.at, sent.chan))
                message.first = min(message.first, ts)
                if row.verdict in ACCEPTED:
                    message.accepted = min(message.accepted, ts)
                message.copies += 1
                message.length = row.length
                message.seen.add(host)
                message.verdicts[host].add(row.verdict)
                if row.verdict == "duplicate":
                    self._copies.append((host, observed.message, ts))
        return messages

    def _ahead(self, host: str) -> int:
        return round(self.simulation.fleet.offsets.get(host, 0) * SECOND)

    def _wrong(self, host: str) -> int:
        """The whole minutes by which a clock is ahead of the middle one of its segment."""
        segment = self.simulation.segment
        together = [other_host for other_host in self.simulation.fleet.hosts if segment(other_host) == segment(host)]
        return round((self._ahead(host) - median_low(map(self._ahead, together))) / MINUTE) * MINUTE

    def _number(self, heard: dict[int, Message]) -> dict[int, int]:
        """The epoch of each message that any receiver heard."""
        by_source: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for index in heard:
            sent = self.simulation.sent[index]
            by_source[sent.source].append((sent.run, sent.seq, index))
        numbers: dict[int, int] = {}
        for of_source in by_source.values():
            epoch, before = 0, 0
            for run, _, index in sorted(of_source):
                epoch += run != before
                numbers[index] = epoch
                before = run
        return numbers

    def _settle(self, heard: dict[int, Message]) -> None:
        simulation = self.simulation
        for host, index, ts in self._copies:
            src = simulation.fleet.sources[simulation.sent[index].source].src
            self.dup[host, src, self.number[index], ts // MINUTE] += 1
        for host in simulation.fleet.hosts:
            if host in simulation.fleet.sessionless:
                continue
            for session in simulation.sessions(host):
                for day in {day_of(message.first) for message in heard.values()}:
                    wrong = self._wrong(host)
                    if day_of(session.start_ts - wrong) <= day <= day_of(session.end_ts - wrong):
                        self.hosts[day].add(host)
        keys: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index in heard:
            keys[simulation.sent[index].source, self.number[index]].append(seq_key(simulation.sent[index].seq))
        for of_epoch in keys.values():
            of_epoch.sort()
        self.tails = self._find_tails(heard, keys)
        for index, message in heard.items():
            sent = simulation.sent[index]
            src, epoch = simulation.fleet.sources[sent.source].src, self.number[index]
            key = seq_key(sent.seq)
            message.gap = self._gap(sent.source, epoch, day_of(message.first), key, keys[sent.source, epoch])
            day = day_of(message.first)
            message.listening = {
                host
                for host in self.hosts[day] | message.seen
                if host in message.seen or self._listens(host, day, sent.source, sent.at)
            }
            self.messages[Place(src, epoch, key)] = message

    def _gap(self, source: int, epoch: int, day: str, key: int, keys: list[int]) -> int:
        """Count the numbers directly before one that no receiver heard, and that no report of a day before told of."""
        lower = bisect_left(keys, key)
        if not lower:
            return 0
        tails = [self.tails.get((source, epoch, earlier)) for earlier in self.hosts if earlier < day]
        return key - max(keys[lower - 1], *(tail.key for tail in tails if tail and tail.key < key), -(2**63)) - 1

    def _find_tails(
        self, heard: dict[int, Message], keys: dict[tuple[int, int], list[int]]
    ) -> dict[tuple[int, int, str], Tail]:
        """Find what reports tell of behind all that was heard on their day, by source, epoch and day."""
        sent = self.simulation.sent
        epochs = {(sent[index].source, sent[index].run): self.number[index] for index in heard}
        reported: dict[tuple[int, int, str], Tail] = {}
        for index, report in heard.items():
            if not report.chan.startswith("bccn/report/") or report.accepted == 2**63:
                continue
            for source, run, first, following in self.simulation.told(index):
                epoch, day = epochs.get((source, run), 0), day_of(report.accepted)
                key, low = seq_key(following - 1), seq_key(first)
                if not any(low <= number <= key for number in keys.get((source, epoch), ())):
                    continue
                tail = Tail(key, report.accepted, report.at)
                reported[source, epoch, day] = max(
                    reported.get((source, epoch, day), tail), tail, key=lambda tail: (tail.key, -tail.first)
                )
        tops: dict[tuple[int, int, str], int] = {}
        for index, message in heard.items():
            place = sent[index].source, self.number[index], day_of(message.first)
            tops[place] = max(seq_key(sent[index].seq), tops.get(place, -(2**63)))
        tails: dict[tuple[int, int, str], Tail] = {}
        for (source, epoch, day), tail in sorted(reported.items()):
            if tail.key > tops.get((source, epoch, day), -(2**63)):
                of_epoch = keys[source, epoch]
                before = [counted.key for place, counted in tails.items() if place[:2] == (source, epoch)]
                lost = tail.key - max(of_epoch[bisect_right(of_epoch, tail.key) - 1], *before, -(2**63))
                tails[source, epoch, day] = tail._replace(lost=max(lost, 0))
        return tails

    def _lost_tails(self) -> list[tuple[str, int, str, Tail]]:
        """List the tails of which something is lost: src, epoch, day."""
        names = list(self.sources)
        return [(names[key[0]], *key[1:], tail) for key, tail in self.tails.items() if tail.lost]

    def audience(self, day: str, source: int) -> set[str]:
        """The hosts that can hear a source: those on its segment, and those that recorded nothing at all."""
        simulation = self.simulation
        segment = simulation.segment(simulation.fleet.sources[source].host)
        return {
            host for host in self.hosts[day] if simulation.segment(host) == segment or (day, host) not in self._recorded
        }

    def _listens(self, host: str, day: str, source: int, at: int) -> bool:
        simulation = self.simulation
        if host not in self.audience(day, source):
            return False
        if host in simulation.fleet.sessionless:
            clock = simulation.fleet.start * SECOND + at + self._ahead(host) - self._wrong(host)
            return any(low <= clock <= high for (its_host, _), (low, high) in self._spans.items() if its_host == host)
        return any(recording.start * SECOND <= at < recording.end * SECOND for recording in simulation.recordings(host))

    def table(self, name: str) -> set[tuple[Any, ...]]:
        """A table's rows: its columns in order, then the day."""
        rows: set[tuple[Any, ...]] = getattr(self, f"_{name}")()
        return rows

    def _epochs(self) -> set[tuple[Any, ...]]:
        """Without the cause."""
        spans: dict[tuple[str, int], list[tuple[int, int, set[str]]]] = defaultdict(list)
        for place, message in self.messages.items():
            spans[place.src, place.epoch].append((message.first, place.key, message.seen))
        ends = {
            place: (min(key for _, key, _ in span), max(key for _, key, _ in span)) for place, span in spans.items()
        }
        for src, epoch, _, tail in self._lost_tails():
            ends[src, epoch] = ends[src, epoch][0], max(ends[src, epoch][1], tail.key)
        return {
            (
                *(src, epoch, "/".join(src.split("/")[:2])),
                *(min(first for first, _, _ in span), max(first for first, _, _ in span), *ends[src, epoch]),
                len(set().union(*(seen for _, _, seen in span))),
                _skipped(ends.get((src, epoch - 1)), ends[src, epoch]),
                day_of(min(first for first, _, _ in span)),
            )
            for (src, epoch), span in spans.items()
        }

    def _messages(self) -> set[tuple[Any, ...]]:
        return {
            (
                *place,
                message.first,
                frozenset(message.seen),
                frozenset(message.listening),
                message.copies,
                message.gap,
                message.chan,
                day_of(message.first),
            )
            for place, message in self.messages.items()
        }

    def _delivery(self) -> set[tuple[Any, ...]]:
        sets: dict[tuple[str, int, frozenset[str], str], list[int]] = defaultdict(list)
        for place, message in self.messages.items():
            sets[place.src, place.epoch, frozenset(message.seen), day_of(message.first)].append(place.key)
        return {(*key[:3], len(keys), min(keys), key[3]) for key, keys in sets.items()}

    def _missed(self) -> set[tuple[Any, ...]]:
        ranges: set[tuple[Any, ...]] = set()
        lost: dict[tuple[str, str, int, str], list[int]] = defaultdict(list)
        for place, message in self.messages.items():
            day = day_of(message.first)
            if message.gap:
                ranges.add((place.src, place.epoch, place.key - message.gap, place.key - 1, None, day))
            for host in message.listening - message.seen:
                lost[day, place.src, place.epoch, host].append(place.key)
        for src, epoch, day, tail in self._lost_tails():
            ranges.add((src, epoch, tail.key - tail.lost + 1, tail.key, None, day))
        for (day, src, epoch, host), keys in lost.items():
            keys.sort()
            low = high = keys[0]
            for key in [*keys[1:], keys[-1] + 2]:
                if key != high + 1:
                    ranges.add((src, epoch, low, high, host, day))
                    low = key
                high = key
        return ranges

    def _link_loss(self) -> set[tuple[Any, ...]]:
        """Without the ratio."""
        cells: dict[tuple[str, str, int, int], Counter[str]] = defaultdict(Counter)
        for place, message in self.messages.items():
            day = day_of(message.first)
            for host in self.audience(day, self.sources[place.src]) | message.seen:
                cell = cells[host, place.src, place.epoch, message.first // MINUTE]
                cell["any_seen"] += 1
                cell["lost_everywhere"] += message.gap * (host in message.listening)
                if host in message.seen:
                    cell["seen"] += 1
                    verdicts = message.verdicts[host]
                    cell["late"] += verdicts <= LATE and "stale" in verdicts
                else:
                    cell["lost_here" if host in message.listening else "not_listening"] += 1
        for key, count in self.dup.items():
            cells[key]["dup"] += count
        for src, epoch, day, tail in self._lost_tails():
            for host in self.hosts[day]:
                if self._listens(host, day, self.sources[src], tail.at):
                    cells[host, src, epoch, tail.first // MINUTE]["lost_everywhere"] += tail.lost
        return {
            (
                *(host, src, epoch, win * MINUTE, cell["any_seen"] + cell["lost_everywhere"], cell["any_seen"]),
                *(cell["seen"], cell["lost_here"], cell["lost_everywhere"], cell["not_listening"], cell["dup"]),
                *(cell["late"], day_of(win * MINUTE)),
            )
            for (host, src, epoch, win), cell in cells.items()
        }

    def _channel_loss(self) -> set[tuple[Any, ...]]:
        cells: dict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)
        for place, message in self.messages.items():
            for host in self.audience(day_of(message.first), self.sources[place.src]) | message.seen:
                cell = cells[host, message.chan, message.first // MINUTE]
                cell["seen"] += host in message.seen
                cell["here"] += host in message.listening - message.seen
                cell["everywhere"] += message.gap * (host in message.listening)
        return {
            (
                *(host, chan, win * MINUTE, sum(cell.values()), cell["seen"], cell["here"], cell["everywhere"]),
                day_of(win * MINUTE),
            )
            for (host, chan, win), cell in cells.items()
        }
