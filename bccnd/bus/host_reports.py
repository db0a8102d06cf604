"""Publishes reports on the messages of this host, and puts the reports of other hosts into the fleet's matrix.

Invariant: a report changes no delivery.
"""

from __future__ import annotations

import time
from binascii import crc32
from collections.abc import Iterable, Iterator
from typing import Final

from bccnd import log
from bccnd.bus.delivery.replies import count_own_refusal
from bccnd.bus.server import Bus
from bccnd.core.sending.datagram_builder import DatagramBuilder
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.sender_counts import sending_host
from bccnd.errors import BadMessage
from bccnd.fleet.matrix import FleetMatrix
from bccnd.fleet.report_format import CHANNEL, REASONS, BadReport, HeardHost, SentRun, read_report, reporting_host
from bccnd.fleet.report_planner import ReportPlanner
from bccnd.net.loop import Loop, Timer

#: an interval is longer or shorter by up to this part, so that a fleet does not report at once
SPREAD: Final = 0.2
#: reports that still include the numbers of a client that has left
TOLD_AFTER_END: Final = 6
#: clients that have left whose numbers are included
MAX_ENDED: Final = 1024

Keys = tuple[str, tuple[str, ...]]


class HostReports:
    """Reports under ``identity``, whose first part is this host."""

    def __init__(
        self,
        loop: Loop,
        bus: Bus,
        builder: DatagramBuilder,
        sources: TrackerTable,
        matrix: FleetMatrix,
        identity: bytes,
        version: str,
    ) -> None:
        self._loop = loop
        self._bus = bus
        self._builder = builder
        self._sources = sources
        self._identity = identity
        self._version = version
        self._planner = ReportPlanner()
        sources.reported.is_reported = self.is_reported
        self._interval = 0.0
        self._timer: Timer | None = None
        self._number = 0
        #: runs of clients that have left, and the number of reports that will still include them
        self._ended: dict[str, tuple[SentRun, int]] = {}
        self.matrix = matrix
        self.host = identity.partition(b"/")[0].decode("ascii")
        self.sent = self.received = 0
        self.refused = dict.fromkeys(REASONS, 0)
        #: messages that arrived and that were lost, by direction: `sent` by this host, summed over receivers
        self.messages = {"sent": 0, "received": 0}
        self.lost = {"sent": 0, "received": 0}

    # -- this host's own

    def set_interval(self, interval: float) -> None:
        """Change the interval; 0 ends the reports with a last one."""
        if interval == self._interval:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not interval:
            self.end()
        self._interval = interval
        self._builder.keep_ended(interval > 0)
        if interval:
            self._schedule()

    def end(self) -> None:
        """Send a last report, marked as the last."""
        if self._interval:
            self._interval = 0.0
            self._publish()

    def _schedule(self) -> None:
        self._number += 1
        # Spread evenly, and the same in each run of a simulation.
        chance = crc32(b"%b %d" % (self._identity, self._number)) / 2**32
        self._timer = self._loop.later(self._interval * (1 + SPREAD * (2 * chance - 1)), self._report)

    def _report(self) -> None:
        self._schedule()
        self._publish()

    def _publish(self) -> None:
        try:
            self._send_report()
        except BadMessage as bad:
            self._count_refused(bad.reason)
        except Exception:  # noqa: BLE001 - the daemon can do without it
            log.bug("a report failed because of a bug in this daemon; the next one will be tried")

    def _send_report(self) -> None:
        """Send all datagrams of a report. Raises BadMessage: no_signing_key."""
        self.refresh()
        chan = CHANNEL + self.host.encode("ascii")
        room = self._builder.room(self._identity, chan)
        payloads = self._planner.write(
            self._version, round(self._interval * 1000), self._keys(), self._sent_runs(), self._heard(), room
        )
        for payload in payloads:
            refused = self._bus.publish(self._identity, chan, payload)
            if refused and refused != "send_failed":  # that one is counted and logged where it happens
                self._count_refused(refused)
            else:
                self.sent += 1

    def _count_refused(self, refused: str) -> None:
        count_own_refusal(self._bus.counters, refused, "reports", "set reports.interval: 0")

    def _sent_runs(self) -> Iterable[SentRun]:
        runs = [SentRun(src.decode("ascii"), first, following) for src, first, following in self._builder.runs()]
        for src, first, following in self._builder.take_ended():
            self._ended.pop(name := src.decode("ascii"), None)
            self._ended[name] = SentRun(name, first, following), TOLD_AFTER_END
        for run in runs:
            self._ended.pop(run.src, None)
        while len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        runs += [run for run, _ in self._ended.values()]
        self._ended = {name: (run, left - 1) for name, (run, left) in self._ended.items() if left > 1}
        return runs

    def _heard(self) -> Iterator[HeardHost]:
        for one in self._sources.senders:
            if one.received or one.lost or one.late or one.duplicate:
                counts = one.received, one.lost, one.late, one.duplicate
                yield HeardHost(one.host.decode("ascii"), one.since_ms, *counts)

    def _keys(self) -> Keys:
        """Return the algorithm and the fingerprints for reports, that of the signing key first."""
        checker = self._builder.checker
        uses = sorted(checker.list_keys(), key=lambda key: not key.signs)
        # Where each host has a key of its own, the keys of all others would fill the report.
        told = [key.fingerprint for key in uses if key.signs or key.algorithm != "sig"]
        return checker.algorithm, tuple(dict.fromkeys(told))

    def _notice_senders(self) -> None:
        for one in self._sources.senders:
            self.matrix.notice(one.host.decode("ascii"), one.heard)

    def refresh(self) -> None:
        """Bring this host's own row up to date."""
        self._notice_senders()
        now = time.monotonic()
        received, lost = self.matrix.update_own(self.host, self._version, self._keys(), self._heard(), now)
        self.messages["received"] += received
        self.lost["received"] += lost

    def count_silent(self) -> int:
        """Count the other hosts that should report and do not."""
        self._notice_senders()
        now = time.monotonic()
        return sum(row.silent(now) for row in self.matrix.rows if row.host != self.host)

    def sweep(self) -> None:
        """Keep the history; call it several times a minute."""
        self.refresh()
        self.matrix.sweep(time.monotonic())

    # -- reports of other hosts

    def on_report(self, src: bytes, seq: int, chan: bytes, payload: bytes, now: float) -> None:
        """Take one accepted datagram on a channel of reports."""
        self.received += 1
        try:
            host = reporting_host(src, chan)
            if host == self.host:
                raise BadReport("wrong_sender")
            report = read_report(host, payload)
            received, lost = self.matrix.update(host, src, seq, report, now, self.host)
        except BadReport as bad:
            self.refused[bad.reason] += 1
        else:
            self.messages["sent"] += received
            self.lost["sent"] += lost
            for run in report.sent:
                if not self._sources.take_report(run.src.encode("ascii"), run.first, run.next, now):
                    self.refused["impossible"] += 1

    def is_reported(self, src: bytes) -> bool:
        """Whether the daemon of a source's host reports the messages of its programs, and has done so lately."""
        row = self.matrix.get(sending_host(src).decode("ascii"))
        return row is not None and row.reports(time.monotonic())
