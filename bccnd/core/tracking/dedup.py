"""Deduplication and loss detection by one tracker per source.

Invariant: the verdict depends only on src, seq, time and whether a link brought the datagram; every table has a cap,
and evictions are counted. Source: BCCN, SEQUENCE NUMBERS AND DEDUP, with these rules where that text is silent:

- Ahead by less than ``sanity``: new; the seqs in between are missing. Ahead by more: a new epoch; the seqs in between
  are lost if a report of the sender covers them, or else its rate explains them (`losses`).
- Behind by ``sanity`` or more, or not new and later than ``horizon`` after the last accepted one: a restart.
- Behind by less: a duplicate if it was seen, else late.
- Missing seqs are lost once they are older than ``horizon`` or fall out of the window of ``sanity``.
- A datagram from a link (``from_link``) may be a late copy: a seq below the last one is a restart only if the source
  has been silent for `LINK_PATIENCE`, and a seq ahead may be from before a known restart.
- On ``linked`` segments a bridge may broadcast such copies too: a source whose seqs are clocks (`is_clock`) restarts
  below its last seq only after `LINK_PATIENCE`.

A window stores the seqs *not* seen, one bit each, so that a source without gaps costs no bit operations.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from bccnd.core.observing.counters import NamedCounts
from bccnd.core.tracking.local_identities import LocalIdentities, LocalIdentity
from bccnd.core.tracking.losses import MAX_RESTARTS, LossBySource, RecentRestarts, ReportedLoss, Restart
from bccnd.core.tracking.sender_counts import NO_SENDER, SenderTable
from bccnd.core.tracking.source import Source, set_window
from bccnd.core.tracking.source_table import SourceTable
from bccnd.core.tracking.tracker_limits import TrackerLimits
from bccnd.core.wire.verdicts import ACCEPTED, DUPLICATE, LAST_ACCEPTED, LOOPED, REPLAYED, RESTART, STALE

#: open gaps: a few MB at one gap per datagram at line rate; an evicted gap is only counted as lost early
MAX_GAPS: Final = 65_536
#: seconds by which the order of eviction may be wrong; avoids reordering for every datagram
RANK_SECONDS: Final = 1.0
#: operations per call of `sweep`, so that a call lasts a fraction of a millisecond
SWEEP_STEP: Final = 128
#: seconds after which no copy arrives over links any more: several links in a row, each stalled as long as a
#: connection survives that
LINK_PATIENCE: Final = 30.0
#: seconds for which a released identity stays local: links may bring its broadcasts late
RELEASE_DELAY: Final = LINK_PATIENCE
#: bounds of seqs that are clocks in microseconds, from 2001 to 2096: such a source does not restart at a lower seq.
#: Nanoseconds and random numbers are above.
CLOCK_MIN: Final = 10**15
_CLOCK_END: Final = 4 * 10**15
#: counters of all trackers together
_COUNTED: Final = ("lost", "restarts", "jumps", "conflicts", "expired", "evicted", "own_evicted", "restarts_evicted")


def is_clock(seq: int) -> bool:
    """Whether a seq is a wall clock in microseconds."""
    return CLOCK_MIN <= seq < _CLOCK_END


class TrackerTable:
    """All trackers, one per src, shared by all segments."""

    def __init__(self, limits: TrackerLimits, senders: SenderTable | None = None) -> None:
        self.limits = limits
        self.table = SourceTable(limits.max_sources)
        #: (deadline, source, its epoch, first missing seq, last missing seq), oldest first
        self._gaps: deque[tuple[float, Source, int, int, int]] = deque()
        self.missing = 0
        #: evicted: before they expired
        self.counted = NamedCounts(_COUNTED)
        self.local = LocalIdentities(self.counted)
        self.restarts = RecentRestarts(MAX_RESTARTS, lambda: self.counted.add("restarts_evicted"))
        self.losses = LossBySource()
        #: counters by sending host
        self.senders = SenderTable() if senders is None else senders
        #: losses that reports of senders show
        self.reported = ReportedLoss(self._lose_reported, lambda: self.counted.add("jumps"))

    def resume(self, source: Source, now: float) -> None:
        """Continue with a source of the daemon before, as the newest; missing seqs have the horizon's time from now."""
        self._set_sender(source, now)
        self.table.add(source)
        missing = source.missing
        if missing:
            self.missing += missing.bit_count()
            self._open_gap_for_all(source, missing, now)

    def __len__(self) -> int:
        return self.table.count

    def count_missing(self) -> int:
        """Count all messages that may still arrive, those that only reports show among them."""
        return int(self.missing) + self.reported.count_missing()

    def __contains__(self, src: bytes) -> bool:
        return self.get(src) is not None

    def all(self) -> list[Source]:
        """Return all sources, the one silent for longest first."""
        return list(self.table.oldest_first())

    def latest(self, count: int) -> list[Source]:
        """Return up to ``count`` sources, the most recently heard first."""
        return list(islice(self.table.newest_first(), count))

    def alive(self, now: float, seconds: float) -> int:
        """Count the sources that were heard within the last ``seconds``."""
        return self.table.count_heard_since(now - seconds, RANK_SECONDS)

    def get(self, src: bytes) -> Source | None:
        source: Source | None = self.table.by_src.get(src)
        return source

    def epoch(self, src: bytes) -> int:
        """Return a source's number of epochs, from 1; 0 if it is not tracked."""
        source = self.get(src)
        return 0 if source is None else source.epoch

    def forget(self, source: Source) -> None:
        """Remove a tracker, as if its source had never been heard."""
        self._remove(source)
        self.counted.add("expired")

    def claim(self, src: bytes) -> LocalIdentity:
        """Make ``src`` a local identity: datagrams under it are this host's own broadcasts."""
        self.drop(src)
        return self.local.claim(src)

    def judge(self, src: bytes, seq: int, now: float, from_link: bool = False) -> int:
        """Return the verdict on a datagram of a legal src that is not anonymous."""
        source = self.find(src, 0, len(src))
        return self.judge_new(src, seq, now) if source is None else self.judge_next(source, seq, now, from_link)

    def find(self, raw: bytes, start: int, end: int) -> Source | None:
        """Return the source whose src is ``raw[start:end]``; None if it is not tracked."""
        source: Source | None = self.table.by_src.get_slice(raw, start, end)
        return source

    def judge_next(self, source: Source, seq: int, now: float, from_link: bool = False) -> int:
        """Return the verdict on the next datagram of a tracked source."""
        # Not `last + 1`, which overflows at the highest seq.
        if seq > source.last and seq - source.last == 1 and source.window is None:
            source.last = seq
            verdict = ACCEPTED
        else:
            verdict = self._judge_out_of_order(source, seq, now, from_link)
            if verdict > LAST_ACCEPTED:
                return verdict
        if now > source.heard:  # a datagram that waited in a link or in another socket is older
            source.heard = now
            if now >= source.rank:
                self.table.touch(source)
                source.rank = now + RANK_SECONDS
                self._hear_sender(source, now)
        source.sender.received += 1
        return verdict

    def _set_sender(self, source: Source, now: float) -> None:
        """Remember the counters of the host of a source."""
        source.sender = self.senders.of(source.src, now)

    def _hear_sender(self, source: Source, now: float) -> None:
        """Note that the host of a source was heard."""
        if source.sender.evicted:
            self._set_sender(source, now)
        source.sender.heard = now

    def count_duplicate(self, src: bytes) -> None:
        """Count a datagram found to be a duplicate for its sending host."""
        sender = self.senders.get(src)
        if sender is not None:
            sender.duplicate += 1

    def judge_new(self, src: bytes, seq: int, now: float) -> int:
        """Return the verdict on a datagram of a legal src that is neither tracked nor anonymous."""
        if self.local.has(src):
            return LOOPED
        if self.table.count >= self.limits.max_sources:
            self._evict()
        source = self.start(src, seq, now)
        source.sender.received += 1
        return ACCEPTED

    def start(self, src: bytes, seq: int, now: float) -> Source:
        """Track a legal src that is neither tracked nor local from this datagram on, whatever the cap."""
        source = Source(src, seq, now)
        source.rank = now + RANK_SECONDS
        self._set_sender(source, now)
        self.table.add(source)
        return source

    def _judge_out_of_order(self, source: Source, seq: int, now: float, from_link: bool) -> int:
        """Judge any seq but the next one of a source without gaps."""
        last: int = source.last
        step = seq - last
        if step >= self.limits.sanity:
            if from_link and self.restarts.predates(source.src, seq, now - LINK_PATIENCE):
                return DUPLICATE
            self.reported.jump(source, seq, now)
            self._new_epoch(source, seq)
            return ACCEPTED
        if step > 0:
            self._advance(source, step, now)
            return ACCEPTED
        verdict = self._judge_backward(source, seq, now, from_link)
        if verdict == RESTART:
            self.counted.add("restarts")
            self.restarts.put(source.src, Restart(max(now, source.heard), last))
            self.reported.forget(source)
            self._new_epoch(source, seq)
        elif verdict == self.limits.late:
            self._mark_seen(source, seq, verdict)
        return verdict

    def _judge_backward(self, source: Source, seq: int, now: float, from_link: bool) -> int:
        """Return the verdict on a seq that is not above the last one."""
        last: int = source.last
        back = last - seq
        by_clock = self.limits.linked and not self.limits.monotonic and is_clock(seq) and is_clock(last)
        careful = from_link or by_clock
        patience = LINK_PATIENCE if careful else self.limits.horizon
        if now - source.heard > patience or (back >= self.limits.sanity and not careful):
            return REPLAYED if self.limits.monotonic else RESTART
        if back >= self.limits.sanity:
            return DUPLICATE
        return self.limits.late if seq < source.first or source.absent >> back & 1 else DUPLICATE

    def predict(self, src: bytes, seq: int, now: float) -> int:
        """Return the verdict that `judge` would give; changes nothing."""
        source = self.get(src)
        if source is not None:
            return ACCEPTED if seq > source.last else self._judge_backward(source, seq, now, False)
        return LOOPED if self.local.has(src) else ACCEPTED

    def _advance(self, source: Source, step: int, now: float) -> None:
        """Move the window by ``step``; the seqs in between are missing."""
        passed = ((1 << (step - 1)) - 1) << 1
        fresh = step - 1
        if self.reported.closed:
            fresh = self.reported.advance(source, source.last + step)
        missing = source.missing << step
        gone = (missing >> self.limits.sanity).bit_count()
        if gone:
            self._lose(source, gone)
        source.last += step
        absent = (source.absent << step | passed) & self.limits.mask
        set_window(source, absent, (missing | ((1 << fresh) - 1) << 1) & self.limits.mask)
        if fresh:
            self.missing += fresh
            last: int = source.last
            self._open_gap(source, last - fresh, last - 1, now)

    def _open_gap(self, source: Source, low: int, high: int, now: float) -> None:
        """Count those of these seqs as lost that are still missing after the horizon."""
        if len(self._gaps) >= MAX_GAPS:
            self._close_gap()
        self._gaps.append((now + self.limits.horizon, source, source.epoch, low, high))

    def _mark_seen(self, source: Source, seq: int, verdict: int) -> None:
        """Mark a seq as seen."""
        late = verdict == STALE
        first: int = source.first
        last: int = source.last
        absent, missing = source.absent, source.missing
        if seq < first:
            # Before the first seq. The seqs in between were not seen either, but are not missing.
            absent |= ((1 << (first - seq - 1)) - 1) << (last - first + 1)
            source.first = seq
        else:
            bit = 1 << (last - seq)
            absent ^= bit
            if missing & bit:
                missing ^= bit
                self.missing -= 1
            else:
                late = True
        if late:
            source.sender.late += 1
        set_window(source, absent, missing)

    def _new_epoch(self, source: Source, seq: int) -> None:
        self._lose_missing(source)
        source.epoch += 1
        source.first = source.last = seq

    def _lose_missing(self, source: Source) -> None:
        """Count all missing seqs of this epoch as lost; none is absent then."""
        missing = source.missing
        if missing:
            self._lose(source, missing.bit_count())
        source.window = None

    def _lose(self, source: Source, gone: int) -> None:
        """Count missing messages as lost."""
        self.missing -= gone
        self.counted.add("lost", gone)
        source.sender.lost += gone
        self.losses.add(source.src, gone)

    def _lose_reported(self, source: Source, gone: int) -> None:
        """Count messages as lost that only a report has shown to be missing."""
        self.missing += gone
        self._lose(source, gone)

    def take_report(self, src: bytes, first: int, following: int, now: float) -> bool:
        """Take a report on a source: the first seq of its run, and the next one. False if that cannot be."""
        source = self.get(src)
        return source is None or self.reported.report(source, first, following, now, self.limits.horizon)

    def _close_gap(self) -> None:
        """Count the missing seqs of the oldest gap as lost."""
        _, source, epoch, low, high = self._gaps.popleft()
        if not source.tracked or source.epoch != epoch:
            return
        back = source.last - high
        missing = source.missing
        if not missing or back >= self.limits.sanity:
            return
        late = missing & ((1 << (high - low + 1)) - 1) << back
        if late:
            set_window(source, source.absent, missing ^ late)
            self._lose(source, late.bit_count())

    def _evict(self) -> None:
        oldest = self.table.oldest()
        if oldest is not None:
            self._remove(oldest)
            self.counted.add("evicted")

    def _remove(self, source: Source) -> None:
        self._lose_missing(source)
        self.reported.forget(source)
        self.table.remove(source)
        source.sender = NO_SENDER

    def sweep(self, now: float) -> bool:
        """Count old gaps as losses and remove expired trackers and identities; True if more can be done now. Cheap;
        call it often."""
        return all(self._sweep_one(now) for _ in range(SWEEP_STEP))

    def _sweep_one(self, now: float) -> bool:
        """Run one task that is due; False if none is."""
        if self._gaps and self._gaps[0][0] <= now:
            self._close_gap()
        elif self.local.sweep(now) or self.restarts.sweep(now - LINK_PATIENCE) or self.reported.sweep(now):
            pass
        elif self.table.count > self.limits.max_sources:
            self._evict()
        else:
            oldest = self.table.oldest()
            # The order is at most RANK_SECONDS late, so the next source is hardly older.
            if oldest is None or oldest.heard + self.limits.expire > now:
                return False
            self.forget(oldest)
        return True

    def _open_gap_for_all(self, source: Source, missing: int, now: float) -> None:
        """Open one gap for all missing seqs of a source."""
        low, high = missing.bit_length() - 1, (missing & -missing).bit_length() - 1
        self._open_gap(source, source.last - low, source.last - high, now)

    def drop(self, src: bytes) -> None:
        """Remove a tracker without counting it as expired."""
        source = self.get(src)
        if source is not None:
            self._remove(source)
