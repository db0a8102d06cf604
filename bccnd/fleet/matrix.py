"""The matrix of receivers and senders: what each host has reported of each, since its start and in the last minutes.

Invariant: numbers of hosts and of what is held of each are capped, and what is evicted is counted. A report changes
only what is shown of its own host, and only if its numbers can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add
from typing import Final, NamedTuple

from bccnd.fleet.attribution import FEW, Loss, Sums
from bccnd.fleet.cell_counters import MINUTES, CellCounters
from bccnd.fleet.report_format import BadReport, HeardHost, HeardHosts, Report, SentRun, heard_hosts
from bccnd.fleet.steps import Steps

#: seconds of one step of the history
STEP: Final = 60.0
#: runs remembered of one host
MAX_RUNS: Final = 1024
#: datagrams of reports from one host that are read in a second, at least, and at once
RATE: Final = 2.0
BURST: Final = 32.0
#: the most that a host sends in an interval, which may be shorter by a fifth, and the shortest interval
_EACH_INTERVAL: Final = 8 / 0.8
_SHORTEST: Final = 0.2
#: numbers that a source can use in a second, and at once: more have not been broadcast
MAX_SEQS_A_SECOND: Final = 2_000_000
#: intervals without a report after which a host is silent; each may be longer by a fifth
SILENT_AFTER: Final = 3 * 1.2

#: seconds after which a host that does not report is forgotten
FORGET: Final = 3600.0

#: the counters of a cell, in the order of a report
FIELDS: Final = ("received", "lost", "late", "duplicate")


class Cell(NamedTuple):
    """What one host has received of another."""

    receiver: str
    sender: str
    received: int
    lost: int
    late: int
    duplicate: int


class HostRow:
    """One reporting host. ``heard`` is when its last report came (monotonic), ``noticed`` when anything else of it did,
    ``keys`` are an algorithm and
    fingerprints, ``runs`` its sources with the numbers they have used."""

    __slots__ = (
        *("counters", "heard", "host", "interval", "keys", "last", "noticed", "other_since", "runs", "since_ms"),
        *("version", "_refilled", "_tokens"),
    )

    def __init__(self, host: str, now: float) -> None:
        self.host = host
        self.version = ""
        self.keys: tuple[str, tuple[str, ...]] = ("", ())
        self.interval = 0.0
        self.heard = self.noticed = now
        self.runs: dict[str, SentRun] = {}
        self.counters = tuple(CellCounters() for _ in FIELDS)
        #: the last report: its src and seq
        self.last = (b"", 0)
        #: since when the counters of most senders count, and of the others, by column
        self.since_ms = 0
        self.other_since: dict[int, int] = {}
        self._tokens = BURST
        self._refilled = now

    def admit(self, now: float) -> bool:
        """Whether one more datagram is read: hosts that send too many reports are not."""
        rate = max(RATE, _EACH_INTERVAL / max(self.interval, _SHORTEST)) if self.interval else RATE
        self._tokens = min(BURST, self._tokens + (now - self._refilled) * rate)
        self._refilled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def since_of(self, column: int) -> int:
        return self.other_since.get(column, self.since_ms)

    def continues(self, heard: HeardHosts) -> bool:
        """Whether all counters of a report have counted since the same time as the row's, as nearly always."""
        return not self.other_since and set(heard.since_ms) == {self.since_ms}

    def begin(self, column: int, since_ms: int) -> None:
        """Begin the counters of a sender at 0."""
        if not self.since_ms:
            self.since_ms = since_ms
        if since_ms == self.since_ms:
            self.other_since.pop(column, None)
        else:
            self.other_since[column] = since_ms
        for counter in self.counters:
            counter.begin(column)

    @property
    def loses(self) -> bool:
        """Whether anything was ever lost there."""
        return bool(self.counters[1])

    def reports(self, now: float) -> bool:
        """Whether it sends reports, and has done so lately."""
        return self.interval > 0 and now - self.heard <= SILENT_AFTER * self.interval

    def silent(self, now: float) -> bool:
        """Whether it should report, and nothing comes of it any more: single reports may be lost."""
        return self.interval > 0 and now - max(self.heard, self.noticed) > SILENT_AFTER * self.interval


class FleetMatrix:
    """All hosts that report, at most ``max_hosts()``, the one heard least recently first."""

    def __init__(self, max_hosts: Callable[[], int], now: float) -> None:
        self._max_hosts = max_hosts
        self._rows: dict[str, HostRow] = {}
        #: columns by sender, and when each was last reported
        self._columns: dict[str, int] = {}
        self._updated: dict[str, float] = {}
        self._free: list[int] = []
        self._none_free_until = 0.0
        self._stepped = now
        #: hosts evicted, and counters of senders left out because no column was free
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> list[HostRow]:
        return list(self._rows.values())

    @property
    def senders(self) -> list[str]:
        return list(self._columns)

    def get(self, host: str) -> HostRow | None:
        return self._rows.get(host)

    def notice(self, host: str, heard: float) -> None:
        """Take when anything of a host was last received."""
        row = self._rows.get(host)
        if row is not None and heard > row.noticed:
            row.noticed = heard

    # -- reports arrive

    def update(self, host: str, src: bytes, seq: int, report: Report, now: float, own: str = "") -> tuple[int, int]:
        """Take one datagram of a report; return what that host has received and lost of ``own`` since the last one.
        Raises BadReport, and then nothing has changed."""
        row = self._rows.get(host)
        if row is not None:
            if not row.admit(now):
                raise BadReport("too_many")
            earlier = row.last[0] == src and seq <= row.last[1]
            # A new daemon may have the same pid, and a clock that was set back. While the old one reports, or of the
            # same seq, it is a report that is late or was sent again.
            if earlier and (row.reports(now) or seq == row.last[1]):
                raise BadReport("outdated")
            if row.last[0] == src and not earlier:
                self._check(row, report, now)
            else:  # a new daemon, which has numbers of its own
                _check_runs(report.sent)
                row.runs.clear()
        else:
            _check_runs(report.sent)
            row = self._add(host, now)
        row.last = src, seq
        row.heard = now
        row.version, row.interval = report.version, report.interval_ms / 1000
        if report.keys is not None:
            row.keys = report.keys
        for run in report.sent:
            row.runs.pop(run.src, None)
            row.runs[run.src] = run
        while len(row.runs) > MAX_RUNS:
            del row.runs[next(iter(row.runs))]
        received, lost = self._count(row, report.heard, now, {own})
        self._rows[host] = self._rows.pop(host)
        return received, lost

    def update_own(
        self, host: str, version: str, keys: tuple[str, tuple[str, ...]], heard: Iterable[HeardHost], now: float
    ) -> tuple[int, int]:
        """Take the counters of this host, which need no report; return what they have received and lost of other hosts
        since the last time."""
        row = self._rows.get(host) or self._add(host, now)
        row.version, row.keys, row.heard = version, keys, now
        told = heard_hosts(heard)
        added = self._count(row, told, now, {sender for sender in told.hosts if sender != host})
        self._rows[host] = self._rows.pop(host)
        return added

    def _check(self, row: HostRow, report: Report, now: float) -> None:
        """Raise BadReport if the numbers of a report cannot be."""
        _check_runs(report.sent)
        possible = MAX_SEQS_A_SECOND * (1 + now - row.heard)
        for run in report.sent:
            known = row.runs.get(run.src)
            if known is not None and (
                (run.first == known.first and run.next < known.next)
                or (run.first <= known.next and run.next - known.next > possible)
            ):
                raise BadReport("impossible")
        heard = report.heard
        columns = [self._columns.get(sender, -1) for sender in heard.hosts]
        counts: Sequence[Sequence[int]] = heard.counts
        # Compared are the counters that have not begun at 0 since.
        continues = row.continues(heard)
        same = [
            place
            for place, (column, since_ms) in enumerate(zip(columns, heard.since_ms, strict=True))
            if column >= 0 and (continues or row.since_of(column) == since_ms)
        ]
        if len(same) < len(columns):
            columns = [columns[place] for place in same]
            counts = [[totals[place] for place in same] for totals in counts]
        if columns and any(
            counter.falls(columns, totals) for counter, totals in zip(row.counters, counts, strict=True)
        ):
            raise BadReport("impossible")

    def _add(self, host: str, now: float) -> HostRow:
        while len(self._rows) >= self._max_hosts():
            self._evict()
        row = self._rows[host] = HostRow(host, now)
        return row

    def _evict(self) -> None:
        del self._rows[next(iter(self._rows))]
        self.evicted += 1

    def _count(self, row: HostRow, heard: HeardHosts, now: float, senders: set[str]) -> tuple[int, int]:
        """Take the counters of a host; return what was received and lost of some senders since the last time."""
        known = self._columns.keys() & heard.hosts
        # First, so that no sender of this report gives its column to another one of it.
        self._updated.update(dict.fromkeys(known, now))
        if len(known) < len(heard.hosts):
            shown = [one for one in heard.rows if self._find_column(one.host, now)]
            self.evicted += len(heard.hosts) - len(shown)
            heard = heard_hosts(shown)
        if not heard.hosts:
            return 0, 0
        columns = [self._columns[sender] for sender in heard.hosts]
        if not row.continues(heard):
            for column, since_ms in zip(columns, heard.since_ms, strict=True):
                if row.since_of(column) != since_ms:
                    row.begin(column, since_ms)
        told = [self._columns[sender] for sender in senders.intersection(heard.hosts)]
        before = [[counter.total(column) for column in told] for counter in row.counters[:2]]
        for counter, totals in zip(row.counters, heard.counts, strict=True):
            counter.raise_to(columns, totals)
        received, lost = (
            sum(counter.total(column) - total for column, total in zip(told, totals, strict=True))
            for counter, totals in zip(row.counters, before, strict=False)
        )
        return received, lost

    def _find_column(self, sender: str, now: float) -> bool:
        """Give a sender a column, if it has none; False if all are in use."""
        if sender not in self._columns:
            if len(self._columns) >= self._max_hosts() and not self._free_column(now):
                return False
            self._columns[sender] = self._free.pop() if self._free else len(self._columns)
            self._updated[sender] = now
        return True

    def _free_column(self, now: float) -> bool:
        """Free the column that was not reported for longest, if it is older than the history: that takes a step for
        each row, so no sender can cause it often."""
        if now <= self._none_free_until:
            return False
        sender = min(self._updated, key=self._updated.__getitem__)
        self._none_free_until = self._updated[sender] + MINUTES * STEP
        if now <= self._none_free_until:
            return False
        del self._updated[sender]
        column = self._columns.pop(sender)
        for row in self._rows.values():
            row.other_since.pop(column, None)
            for counter in row.counters:
                counter.clear(column)
        self._free.append(column)
        self.evicted += 1
        return True

    # -- time passes

    def sweep(self, now: float) -> None:
        """Begin a new step of the history once a minute has passed, and forget hosts that have been silent for long."""
        for row in self.rows:
            if now - row.heard > FORGET:
                del self._rows[row.host]
        while now - self._stepped >= STEP:
            self._stepped += STEP
            for row in self._rows.values():
                for counter in row.counters:
                    counter.step()

    # -- shown

    def cells(self, row: HostRow, minutes: int | None = None) -> Iterator[Cell]:
        """Yield what a host has received of each sender: since its daemon's start, or in the last minutes."""
        counts = [counter.totals() if minutes is None else counter.recent(minutes) for counter in row.counters]
        end = max(map(len, counts))
        cells = list(zip(*(_padded(one, end) for one in counts), strict=True))
        for sender, column in list(self._columns.items()):
            if column < end and any(cells[column]):
                yield Cell(row.host, sender, *cells[column])

    def sum_losses(self, minutes: int) -> Steps[Sums]:
        """Sum up what was received and lost in the last minutes, by host and by sender; without own messages."""
        names = dict(self._columns)
        size = max(names.values(), default=-1) + 1
        by_column = [[0] * size for _ in range(4)]
        hosts: dict[str, Loss] = {}
        for row in self.rows:
            yield
            received, lost = (_resized(counter.recent(minutes), size) for counter in row.counters[:2])
            if (own := names.get(row.host)) is not None:
                received[own] = lost[own] = 0
            due = list(map(add, received, lost))
            told: tuple[Sequence[int], ...] = due, lost, list(map(bool, lost)), list(map(bool, due))
            by_column = [list(map(add, sums, counts)) for sums, counts in zip(by_column, told, strict=True)]
            if any(due):
                hosts[row.host] = Loss(row.host, "", *map(sum, told))
        columns = list(zip(*by_column, strict=True))
        senders = {
            name: Loss("", name, *columns[at])
            for name, at in names.items()
            # A column may have been given to another sender meanwhile.
            if columns[at][0] and self._columns.get(name) == at
        }
        return Sums(Loss("", "", *map(sum, by_column)), hosts, senders)

    def suspect_cells(self, sums: Sums, minutes: int) -> Steps[list[Cell]]:
        """Return the cells of hosts and senders that losses may be attributed to."""
        hosts, senders = sums.suspects
        suspects: list[Cell] = []
        for row in self.rows:
            yield
            if row.host in hosts:
                suspects += self.cells(row, minutes)
            elif senders or max(row.counters[1].recent(minutes), default=0) >= FEW:
                cells = self.cells(row, minutes)
                suspects += (cell for cell in cells if cell.sender in senders or cell.lost >= FEW)
        return suspects

    def recent_counts(self, row: HostRow, senders: Iterable[str], minutes: int) -> list[list[int] | None]:
        """Return each counter of a host in the last minutes, in the order of ``senders``; None if it is all 0. One that
        has no column any more has counted nothing."""
        columns = [self._columns.get(sender, -1) for sender in senders]
        counts: list[list[int] | None] = []
        for counter in row.counters:
            sums = counter.recent(minutes)
            shown = [sums[column] if 0 <= column < len(sums) else 0 for column in columns]
            counts.append(shown if any(shown) else None)
        return counts

    def sums(self, minutes: int | None = None) -> dict[str, tuple[int, int]]:
        """Return what all have received and lost of each sender together."""
        received: dict[str, tuple[int, int]] = {}
        for row in self._rows.values():
            for cell in self.cells(row, minutes):
                if cell.receiver != cell.sender:
                    before = received.get(cell.sender, (0, 0))
                    received[cell.sender] = before[0] + cell.received, before[1] + cell.lost
        return received


def _padded(counts: list[int], size: int) -> list[int]:
    return counts + [0] * (size - len(counts))


def _resized(counts: list[int], size: int) -> list[int]:
    return _padded(counts, size)[:size]


def _check_runs(sent: Iterable[SentRun]) -> None:
    if any(run.next < run.first for run in sent):
        raise BadReport("impossible")
