"""Decides whether sources that send heartbeats are alive, silent or dead.

A source is watched once it has sent a heartbeat (a message on ``heartbeat/<src>``); any accepted datagram is then a
sign of life. It is silent after 1.5 intervals without one, and dead after ``dead_after`` intervals and a half, when its
tracker is removed. Time counts only while this daemon was receiving. Source: BCCN, "Heartbeat convention" and SEQUENCE
NUMBERS AND DEDUP (expiry).

A timer wheel lists the sources to check at each tick, so that there is no timer per source.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from bccnd.core.observing.counters import NamedCounts
from bccnd.core.tracking.capped_dict import CappedDict
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.source import ALIVE as ALIVE
from bccnd.core.tracking.source import DEAD as DEAD
from bccnd.core.tracking.source import SILENT as SILENT
from bccnd.core.tracking.source import UNWATCHED as UNWATCHED
from bccnd.core.tracking.source import Source
from bccnd.core.tracking.tracker_limits import DEAD_AFTER

STATE_NAMES: Final = ("", "alive", "silent", "dead")

#: seconds between heartbeats of a source whose interval is unknown, if this daemon sends none
USUAL_INTERVAL: Final = 5.0
#: intervals without a sign of life until a source is silent
PATIENCE: Final = 1.5
#: largest interval that is learned from a source, in expected intervals
MAX_STRETCH: Final = 12.0
#: seconds per tick of the timer wheel
TICK: Final = 0.25
#: sources checked per call of `sweep`, so that a call lasts a fraction of a millisecond
STEP: Final = 128
#: seconds between two sweeps, or half an interval if shorter, from which on this daemon was not receiving
ASLEEP: Final = 2.0
#: the latest deaths are remembered
MAX_DEAD: Final = 1024

Change = tuple[bytes, int]


class Death(NamedTuple):
    """A dead source: when it was last heard, its last heartbeat, and the interval before that."""

    heard: float
    beat: float
    gap: float


class HeartbeatRules(NamedTuple):
    """The section ``heartbeat``: the seconds between those that this host sends and expects, 0 for none."""

    interval: float = 0.0
    dead_after: int = DEAD_AFTER


class Liveness:
    """Watches the sources that send heartbeats. The caller empties ``changes``."""

    def __init__(self, sources: TrackerTable, rules: HeartbeatRules, now: float) -> None:
        #: if they are replaced, the new ones hold for each source when it is checked next
        self.rules = rules
        self._sources = sources
        self._wheel: dict[int, list[Source]] = {}
        self._tick = int(now / TICK)
        self._entries = 0
        self._swept = now
        #: silence before this moment does not count
        self._listening_since = now
        #: when this daemon took over from the one before
        self._resumed = float("-inf")
        self.changes: list[Change] = []
        #: deaths, heartbeats ignored because too many sources are watched, and deaths evicted from `dead`
        self.counted = NamedCounts(("deaths", "unwatched", "dead_evicted"))
        #: by src, the latest last
        self.dead: CappedDict[bytes, Death] = CappedDict(MAX_DEAD, partial(self.counted.add, "dead_evicted"))

    @property
    def interval(self) -> float:
        """The expected seconds between heartbeats."""
        return self.rules.interval or USUAL_INTERVAL

    def on_heartbeat(self, src: bytes, now: float) -> None:
        """Handle an accepted heartbeat of a tracked source."""
        source = self._sources.get(src)
        if source is None:
            return
        was = source.state
        if was == UNWATCHED and self._entries >= self._sources.limits.max_sources:
            self.counted.add("unwatched")
            return
        self._update_interval(source, now)
        if was != ALIVE:
            self._change(source, ALIVE)
            if was != SILENT:  # silent sources are in the wheel already
                self._schedule(source, now, now + self._patience(source))

    def _update_interval(self, source: Source, now: float) -> None:
        if source.state == UNWATCHED:
            source.interval = self.interval
            # Also learns an interval that is so long that the source dies between heartbeats.
            before = self.dead.pop(source.src, None)
            if before is not None:
                source.gap = before.gap
                self._learn(source, now - before.beat)
        else:
            self._learn(source, now - source.beat)
        source.beat = max(source.beat, now)

    def _learn(self, source: Source, gap: float) -> None:
        """Learn an interval from two gaps in a row that agree; one alone may be due to a lost heartbeat. An interval
        shorter than expected is ignored."""
        expected = self.interval
        if gap <= 0:  # they were queued and arrived at once
            return
        if abs(gap - source.gap) <= 0.25 * gap:
            source.interval = min(max(expected, (gap + source.gap) / 2), expected * MAX_STRETCH)
        source.gap = gap

    @staticmethod
    def _patience(source: Source) -> float:
        """Return the seconds without a sign of life until a source is silent."""
        return PATIENCE * source.interval

    def _schedule(self, source: Source, now: float, when: float) -> None:
        """Check a source at ``when`` or earlier, since its interval may become the expected one."""
        when = min(when, now + PATIENCE * self.interval)
        self._wheel.setdefault(max(int(when / TICK), self._tick) + 1, []).append(source)
        self._entries += 1

    def _change(self, source: Source, state: int) -> None:
        self._sources.table.silent += (state == SILENT) - (source.state == SILENT)
        source.state = state
        self.changes.append((source.src, state))

    @property
    def silent(self) -> int:
        """The number of silent sources."""
        return self._sources.table.silent

    def sweep(self, now: float) -> bool:
        """Check the sources that are due; True if more are due now. Cheap; call it often."""
        if now - self._swept > min(ASLEEP, max(2 * TICK, self.interval / 2)):
            self._listening_since = now
        self._swept = now
        last = int(now / TICK)
        checked = 0
        while self._tick <= last:
            due = self._wheel.get(self._tick)
            while due:
                if checked >= STEP:
                    return True
                checked += 1
                self._entries -= 1
                self._check(due.pop(), now)
            self._wheel.pop(self._tick, None)
            self._tick += 1
        return False

    def _check(self, source: Source, now: float) -> None:
        if not source.tracked:  # evicted or expired in the meantime
            return
        source.interval = max(source.interval, self.interval)
        sign = max(source.heard, self._listening_since)
        quiet = now - sign
        death = (self.rules.dead_after + 0.5) * source.interval
        if quiet < self._patience(source):
            # A source that was silent before a restart stays so until it is heard.
            if source.state != ALIVE and (source.heard >= self._resumed or self._resumed != self._listening_since):
                self._change(source, ALIVE)
            self._schedule(source, now, sign + self._patience(source))
        elif quiet < death:
            if source.state != SILENT:
                self._change(source, SILENT)
            # Checked early, because messages other than heartbeats make it alive again too.
            self._schedule(source, now, min(sign + death, now + source.interval / 2))
        else:
            self._die(source)

    def _die(self, source: Source) -> None:
        self._change(source, DEAD)
        self.counted.add("deaths")
        self.dead.put(source.src, Death(source.heard, source.beat, source.gap))
        if self._sources.limits.monotonic:  # else its datagrams could be replayed
            source.state = UNWATCHED
        else:
            self._sources.forget(source)

    def resume(self, now: float) -> None:
        """Continue with the sources of the daemon before, once the trackers have; silence counts from now on."""
        self._tick = int(now / TICK)
        self._swept = self._listening_since = self._resumed = now
        for source in self._sources.all():
            if source.state == UNWATCHED:
                continue
            if source.state not in (ALIVE, SILENT) or self._entries >= self._sources.limits.max_sources:
                self._sources.table.silent -= source.state == SILENT
                source.state = UNWATCHED
                self.counted.add("unwatched")
                continue
            self._schedule(source, now, now + self._patience(source))
