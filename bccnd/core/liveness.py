"""Heartbeats: who is alive, who has fallen silent, who is dead.

Law: who has once sent a heartbeat (a message on ``heartbeat/<src>``) is watched; any accepted datagram of his is a
sign of life. After half an interval beyond the one that passed without a sign he is silent, after ``dead_after``
intervals and a half he is dead and his tracker is given up. Silence counts only while we were listening ourselves.
Source: BCCN, "Heartbeat convention" and SEQUENCE NUMBERS AND DEDUP (expiry).

Watching costs no timer per source: each stands in the list of the tick at which he is to be looked at next.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from bccnd.core.dedup import TrackerTable
from bccnd.core.lru import Source

if TYPE_CHECKING:
    from bccnd.core.tracker_log import TrackerLog

#: the channel of a heartbeat is this and the src of its sender
HEARTBEAT: Final = b"heartbeat/"

#: not watched: no heartbeat was heard yet
UNWATCHED: Final = 0
ALIVE: Final = 1
SILENT: Final = 2
DEAD: Final = 3
STATE_NAMES: Final = ("", "alive", "silent", "dead")

#: seconds between heartbeats for those of whom nothing else is known, where we send none ourselves
USUAL_INTERVAL: Final = 5.0
#: intervals without a sign until a source is silent: the one that passed and half of the next
PATIENCE: Final = 1.5
#: how many times longer than expected somebody's own interval may be; beyond it he is not taken at his word
MAX_STRETCH: Final = 12.0
#: width of a tick of the wheel, in seconds
TICK: Final = 0.25
#: sources looked at per call of `sweep`, so that no call lasts longer than a fraction of a millisecond
STEP: Final = 128
#: seconds between two sweeps from which on we were asleep ourselves, or half an interval where that is shorter
ASLEEP: Final = 2.0
#: of the dead, the latest are remembered
MAX_DEAD: Final = 1024

Change = tuple[bytes, int]


class Death(NamedTuple):
    """What is remembered of a dead source: when it was heard last, when its last heartbeat came, and how long after
    the one before."""

    heard: float
    beat: float
    gap: float


@dataclass(frozen=True)
class LivenessRules:
    """``interval`` in seconds is what to expect of others; ``keep_dead`` leaves the dead their trackers, so that
    nothing that they have sent can be replayed."""

    interval: float = USUAL_INTERVAL
    dead_after: int = 3
    keep_dead: bool = False
    max_watched: int = 100_000


class Liveness:
    """Watches the sources that send heartbeats. ``changes`` is for the caller to take away."""

    def __init__(self, sources: TrackerTable, rules: LivenessRules, now: float) -> None:
        self._sources = sources
        #: where it is written down who lives and who does not
        self.tracker_log: TrackerLog | None = None
        self._wheel: dict[int, list[Source]] = {}
        self._tick = int(now / TICK)
        self._entries = 0
        self._swept = now
        #: silence before this moment is no evidence: we were not listening
        self._listening_since = now
        #: when we took over from those before us, who were listening up to then
        self._resumed = float("-inf")
        self.changes: list[Change] = []
        #: by src, the latest last
        self.dead: OrderedDict[bytes, Death] = OrderedDict()
        self.silent = 0
        self.deaths = 0
        #: heartbeats of sources for which there was no room
        self.unwatched = 0
        #: dead sources that are not listed any more, for want of room
        self.dead_evicted = 0
        self.configure(rules)

    def configure(self, rules: LivenessRules) -> None:
        """Put other rules in force, for each source when it is looked at next."""
        self.rules = rules

    def beat(self, src: bytes, now: float) -> None:
        """A heartbeat of a tracked source was accepted."""
        source = self._sources.get(src)
        if source is None:
            return
        was = source.state
        if was == UNWATCHED and self._entries >= self.rules.max_watched:
            self.unwatched += 1
            return
        if self.tracker_log is not None:
            self.tracker_log.beat(src)
        self._hear(source, now)
        if was != ALIVE:
            self._change(source, ALIVE)
            if was != SILENT:  # the silent ones stand in the wheel already
                self._schedule(source, now, now + self._patience(source))

    def _hear(self, source: Source, now: float) -> None:
        """What a heartbeat tells of who sends it."""
        if source.state == UNWATCHED:
            source.interval = self.rules.interval
            # One whose own interval is so long that he seems to die of each has to be learned too.
            before = self.dead.pop(source.src, None)
            if before is not None:
                source.gap = before.gap
                self._learn(source, now - before.beat)
        else:
            self._learn(source, now - source.beat)
        source.beat = now

    def _learn(self, source: Source, gap: float) -> None:
        """Two gaps in a row that agree are his own interval; one alone may be a heartbeat that was lost. An interval
        shorter than expected changes nothing: he is given the time that everyone has."""
        expected = self.rules.interval
        if gap <= 0:  # they waited for us and came all at once
            return
        if abs(gap - source.gap) <= 0.25 * gap:
            source.interval = min(max(expected, (gap + source.gap) / 2), expected * MAX_STRETCH)
        source.gap = gap

    @staticmethod
    def _patience(source: Source) -> float:
        """How long without a sign until he is silent."""
        return PATIENCE * source.interval

    def _schedule(self, source: Source, now: float, when: float) -> None:
        """Look at him then, or earlier: his interval may become the expected one at any time."""
        when = min(when, now + PATIENCE * self.rules.interval)
        self._wheel.setdefault(max(int(when / TICK), self._tick) + 1, []).append(source)
        self._entries += 1

    def _change(self, source: Source, state: int) -> None:
        self.silent += (state == SILENT) - (source.state == SILENT)
        source.state = state
        self.changes.append((source.src, state))

    def _turn(self, source: Source, state: int) -> None:
        """It was not a heartbeat that has changed him."""
        self._change(source, state)
        if self.tracker_log is not None:
            self.tracker_log.state(source.src, state)

    def sweep(self, now: float) -> bool:
        """Let time pass; True when there is more to be looked at now. Cheap; call it often."""
        if now - self._swept > min(ASLEEP, max(2 * TICK, self.rules.interval / 2)):
            self._listening_since = now
        self._swept = now
        last = int(now / TICK)
        looked_at = 0
        while self._tick <= last:
            due = self._wheel.get(self._tick)
            while due:
                if looked_at >= STEP:
                    return True
                looked_at += 1
                self._entries -= 1
                self._look_at(due.pop(), now)
            self._wheel.pop(self._tick, None)
            self._tick += 1
        return False

    def _look_at(self, source: Source, now: float) -> None:
        if self._sources.get(source.src) is not source:  # evicted or expired in the meantime
            self.silent -= source.state == SILENT
            return
        source.interval = max(source.interval, self.rules.interval)
        sign = max(source.heard, self._listening_since)
        quiet = now - sign
        death = (self.rules.dead_after + 0.5) * source.interval
        if quiet < self._patience(source):
            # Who was silent before we were started anew still is, and nobody need be told otherwise.
            if source.state != ALIVE and (source.heard >= self._resumed or self._resumed != self._listening_since):
                self._turn(source, ALIVE)
            self._schedule(source, now, sign + self._patience(source))
        elif quiet < death:
            if source.state != SILENT:
                self._turn(source, SILENT)
            # Looked at before his time is over, because other messages than heartbeats bring him back as well.
            self._schedule(source, now, min(sign + death, now + source.interval / 2))
        else:
            self._die(source)

    def _die(self, source: Source) -> None:
        self._change(source, DEAD)
        self.deaths += 1
        death = Death(source.heard, source.beat, source.gap)
        self._bury(source.src, death)
        if self.tracker_log is not None:
            self.tracker_log.dead(source.src, death)
        if self.rules.keep_dead:
            source.state = UNWATCHED
        else:
            self._sources.forget(source)

    def _bury(self, src: bytes, death: Death) -> None:
        self.dead[src] = death
        self.dead.move_to_end(src)
        if len(self.dead) > MAX_DEAD:
            self.dead.popitem(last=False)
            self.dead_evicted += 1

    # -- what comes back from the annals; nobody is told of it, as all was told before

    def restore_beat(self, src: bytes, when: float) -> None:
        """He sent a heartbeat then."""
        source = self._sources.get(src)
        if source is None:  # somebody else spoke under what is a name of ours by now
            self.dead.pop(src, None)
        else:
            self._hear(source, when)
            source.state = ALIVE

    def restore_state(self, src: bytes, state: int) -> None:
        """He fell silent, or came back."""
        source = self._sources.get(src)
        if source is not None and source.state != UNWATCHED:
            source.state = state

    def restore_death(self, src: bytes, death: Death) -> None:
        """He died."""
        source = self._sources.get(src)
        if source is not None:
            source.state = UNWATCHED
        self._bury(src, death)

    def settle(self, now: float) -> None:
        """After all was restored: who is watched is looked at in due time, and silence counts from now on."""
        self._tick = int(now / TICK)
        self._swept = self._listening_since = self._resumed = now
        for shard in range(self._sources.shards()):
            for source in self._sources.shard(shard):
                if source.state == UNWATCHED:
                    continue
                if self._entries >= self.rules.max_watched:
                    source.state = UNWATCHED
                    self.unwatched += 1
                    continue
                self.silent += source.state == SILENT
                self._schedule(source, now, now + self._patience(source))
