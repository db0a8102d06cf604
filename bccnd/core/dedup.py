"""Deduplication and loss detection by one tracker per source.

Invariant: the verdict depends only on src, seq, time and whether a link brought the datagram; every table has a cap,
and evictions are counted. Source: BCCN, SEQUENCE NUMBERS AND DEDUP, with these rules where that text is silent:

- Ahead by less than ``sanity``: new; the seqs in between are missing. Ahead by more: a new epoch; the seqs in between
  are lost if a report of the sender says that it has sent them (`reported_loss`).
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
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from operator import itemgetter
from typing import Final

from bccnd.core.bccn1 import UNKNOWN_SRC
from bccnd.core.lru import LruTable, Source
from bccnd.core.reported_loss import ReportedLoss
from bccnd.core.sender_counts import SenderTable
from bccnd.core.tracker_log import TrackerLog
from bccnd.core.verdicts import ACCEPTED, DUPLICATE, LAST_ACCEPTED, LOOPED, REORDERED, REPLAYED, RESTART, STALE

#: open gaps: a few MB at one gap per datagram at line rate; an evicted gap is only counted as lost early
MAX_GAPS: Final = 65_536
#: local identities that were released, whose last broadcasts may still arrive
MAX_RELEASED: Final = 65_536
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
#: entries of `lost_by_source`; up to twice as many until the smallest are removed
MAX_LOST_BY_SOURCE: Final = 256
#: restarts remembered to recognize copies from before them
MAX_ENDED: Final = 4096

#: not verdicts: an untracked src, for `judge_new`, and the anonymous src, for `AnonymousDedup`
UNHEARD: Final = -1
UNKNOWN_SENDER: Final = -2


@dataclass(frozen=True)
class DedupRules:
    """Settings of the trackers; times in seconds."""

    sanity: int = 1024
    horizon: float = 2.0
    deliver_late: bool = False
    monotonic: bool = False
    expire: float = 86_400.0
    max_sources: int = 100_000
    linked: bool = False


def is_clock(seq: int) -> bool:
    """Whether a seq is a wall clock in microseconds."""
    return CLOCK_MIN <= seq < _CLOCK_END


class LocalIdentity:
    """Seqs used under an identity of this host: from ``first`` up to ``next``. It expires at ``until``; ``reported``
    is set once another sender was found to use it."""

    __slots__ = ("first", "next", "reported", "until")

    def __init__(self) -> None:
        self.first = self.next = 0
        self.until = float("inf")
        self.reported = False


class TrackerTable:
    """All trackers, one per src, shared by all segments."""

    def __init__(self, rules: DedupRules) -> None:
        self._lru = LruTable(rules.max_sources)
        self._index = self._lru.index
        #: logs removals and local identities; the caller logs datagrams
        self.tracker_log: TrackerLog | None = None
        #: local identities, with released ones until they expire
        self._own: dict[bytes, LocalIdentity] = {}
        self._released: deque[tuple[float, bytes]] = deque()
        #: by src: the time of the last restart, and the last seq before it
        self._ended: dict[bytes, tuple[float, int]] = {}
        #: (deadline, source, its epoch, first missing seq, last missing seq), oldest first
        self._gaps: deque[tuple[float, Source, int, int, int]] = deque()
        self.missing = 0
        self.lost = 0
        #: the sources that have lost most since the start, and how much
        self.lost_by_source: dict[bytes, int] = {}
        self.restarts = 0
        self.jumps = 0
        #: counters by sending host
        self.senders = SenderTable()
        #: losses that reports of senders show
        self.reported = ReportedLoss(self._lose_reported, self._count_jump)
        #: datagrams under a local identity that this host has not sent
        self.conflicts = 0
        self.expired = 0
        self.evicted = 0
        #: evicted before they expired: local identities, and remembered restarts
        self.own_evicted = 0
        self.restarts_evicted = 0
        self.configure(rules)

    def configure(self, rules: DedupRules) -> None:
        """Change the rules; the trackers stay."""
        self._sanity = rules.sanity
        self._mask = (1 << rules.sanity) - 1
        self._horizon = rules.horizon
        self._late = REORDERED if rules.deliver_late else STALE
        self._monotonic = rules.monotonic
        self._expire = rules.expire
        self._linked = rules.linked
        #: `sweep` evicts what exceeds a lowered cap
        self._max = rules.max_sources

    def __len__(self) -> int:
        return len(self._lru)

    def __contains__(self, src: bytes) -> bool:
        return self._lru.get(src) is not None

    def latest(self, count: int) -> list[Source]:
        """Return up to ``count`` sources, the most recently heard first."""
        return list(islice(self._lru.newest_first(), count))

    def alive(self, now: float, seconds: float) -> int:
        """Count the sources that were heard within the last ``seconds``."""
        return self._lru.count_heard_since(now - seconds, RANK_SECONDS)

    def get(self, src: bytes) -> Source | None:
        return self._lru.get(src)

    def epoch(self, src: bytes) -> int:
        """Return a source's number of epochs, from 1; 0 if it is not tracked."""
        source = self._lru.get(src)
        return 0 if source is None else source.epoch

    def forget(self, source: Source) -> None:
        """Remove a tracker, as if its source had never been heard."""
        self._remove(source)
        self.expired += 1

    def claim(self, src: bytes) -> LocalIdentity:
        """Make ``src`` a local identity: datagrams under it are this host's own broadcasts."""
        own = self._own.setdefault(src, LocalIdentity())
        own.until = float("inf")
        self.drop(src)
        if self.tracker_log is not None:
            self.tracker_log.log_identity(src, own.until, own.first, own.next)
        return own

    def release(self, src: bytes, until: float) -> None:
        """Release a local identity, whose last broadcasts may still arrive until a time."""
        own = self._own.get(src)
        if own is not None:
            own.until = until
            self._released.append((until, src))
            if len(self._released) > MAX_RELEASED:
                self.own_evicted += 1
                self._expire_identity()
            if self.tracker_log is not None:
                self.tracker_log.log_identity(src, own.until, own.first, own.next)

    def _expire_identity(self) -> None:
        until, src = self._released.popleft()
        own = self._own.get(src)
        if own is not None and own.until == until:
            del self._own[src]

    def check_conflict(self, src: bytes, seq: int) -> bool:
        """Count a LOOPED datagram with a seq that this host never used: another sender uses the identity.

        True the first time for an identity.
        """
        own = self._own[src]
        if own.first <= seq < own.next:
            return False
        self.conflicts += 1
        first_time, own.reported = not own.reported, True
        return first_time

    def judge(self, src: bytes, seq: int, now: float, from_link: bool = False) -> int:
        """Return the verdict on a well-formed datagram, or UNHEARD."""
        source = self._lru.get(src)
        return UNHEARD if source is None else self.follow(source, seq, now, from_link)

    def get_slice(self, raw: bytes, start: int, end: int) -> Source | None:
        """Return the source whose src is ``raw[start:end]``, if it is tracked."""
        found: Source | None = self._index.get_slice(raw, start, end)
        return found

    def follow(self, source: Source, seq: int, now: float, from_link: bool = False) -> int:
        """Return the verdict on the next datagram of a tracked source."""
        # Not `last + 1`, which overflows at the highest seq; and compiled, `== 0` calls nothing, while `not` does.
        if seq > source.last and seq - source.last == 1 and source.absent == 0:
            source.last = seq
            verdict = ACCEPTED
        else:
            verdict = self._place(source, seq, now, from_link)
            if verdict > LAST_ACCEPTED:
                return verdict
        if now > source.heard:  # what waited in a link or in another socket is older
            source.heard = now
            if now >= source.rank:
                self._lru.touch(source)
                source.rank = now + RANK_SECONDS
                self._hear_sender(source, now)
        source.sender.received += 1
        return verdict

    def _hear_sender(self, source: Source, now: float) -> None:
        """Note that the host of a source was heard."""
        if source.sender.evicted:
            source.sender = self.senders.of(source.src, now)
        source.sender.heard = now

    def count_duplicate(self, src: bytes) -> None:
        """Count a datagram found to be a duplicate for its sending host."""
        sender = self.senders.get(src)
        if sender is not None:
            sender.duplicate += 1

    def judge_new(self, src: bytes, seq: int, now: float) -> int:
        """Return the verdict on the first datagram of a legal src, or UNKNOWN_SENDER."""
        if src == UNKNOWN_SRC:
            return UNKNOWN_SENDER
        if src in self._own:
            return LOOPED
        if len(self._lru) >= self._max:
            self._evict()
        source = self.start(src, seq, now)
        source.sender.received += 1
        return ACCEPTED

    def start(self, src: bytes, seq: int, now: float) -> Source:
        """Track a legal src that is neither tracked nor local from this datagram on, whatever the cap."""
        source = Source(src, seq, now)
        source.rank = now + RANK_SECONDS
        source.sender = self.senders.of(src, now)
        self._lru.add(source)
        return source

    def _place(self, source: Source, seq: int, now: float, from_link: bool) -> int:
        """Judge any seq but the next one of a source without gaps."""
        step = seq - source.last
        if step >= self._sanity:
            if from_link and self._predates_restart(source.src, seq, now):
                return DUPLICATE
            self.reported.skip(source, seq, now)
            self._new_epoch(source, seq)
            return ACCEPTED
        if step > 0:
            self._advance(source, step, now)
            return ACCEPTED
        verdict = self._backward(source, seq, now, from_link)
        if verdict == RESTART:
            self.restarts += 1
            self._remember_restart(source, now)
            self.reported.forget(source.src)
            self._new_epoch(source, seq)
        elif verdict == self._late:
            self._mark(source, seq, verdict)
        return verdict

    def _backward(self, source: Source, seq: int, now: float, from_link: bool) -> int:
        """Return the verdict on a seq that is not above the last one."""
        back = source.last - seq
        by_clock = self._linked and not self._monotonic and is_clock(seq) and is_clock(source.last)
        careful = from_link or by_clock
        patience = LINK_PATIENCE if careful else self._horizon
        if now - source.heard > patience or (back >= self._sanity and not careful):
            return REPLAYED if self._monotonic else RESTART
        if back >= self._sanity:
            return DUPLICATE
        return self._late if seq < source.first or source.absent >> back & 1 else DUPLICATE

    def _remember_restart(self, source: Source, now: float) -> None:
        if len(self._ended) >= MAX_ENDED:
            oldest = next(iter(self._ended))
            self.restarts_evicted += now - self._ended.pop(oldest)[0] <= LINK_PATIENCE
        self._ended[source.src] = (max(now, source.heard), source.last)

    def _predates_restart(self, src: bytes, seq: int, now: float) -> bool:
        """Whether a seq may be from before the last restart."""
        when, last = self._ended.get(src, (0.0, -1))
        return seq <= last and now - when <= LINK_PATIENCE

    def predict(self, src: bytes, seq: int, now: float) -> int:
        """Return the verdict that a datagram would get, or UNKNOWN_SENDER; changes nothing."""
        source = self._lru.get(src)
        if source is not None:
            return ACCEPTED if seq > source.last else self._backward(source, seq, now, False)
        if src == UNKNOWN_SRC:
            return UNKNOWN_SENDER
        return LOOPED if src in self._own else ACCEPTED

    def _advance(self, source: Source, step: int, now: float) -> None:
        """Move the window by ``step``; the seqs in between are missing."""
        passed = ((1 << (step - 1)) - 1) << 1
        fresh = step - 1
        if self.reported.settled:
            fresh = self.reported.pass_over(source, source.last + step)
        missing = source.missing << step
        gone = (missing >> self._sanity).bit_count()
        if gone:
            self._lose(source, gone)
        source.last += step
        source.absent = (source.absent << step | passed) & self._mask
        source.missing = (missing | ((1 << fresh) - 1) << 1) & self._mask
        if fresh:
            self.missing += fresh
            self._open_gap(source, source.last - fresh, source.last - 1, now)

    def _open_gap(self, source: Source, low: int, high: int, now: float) -> None:
        """Count what is missing of these seqs as lost after the horizon."""
        if len(self._gaps) >= MAX_GAPS:
            self._close_gap()
        self._gaps.append((now + self._horizon, source, source.epoch, low, high))

    def _mark(self, source: Source, seq: int, verdict: int) -> None:
        """Mark a seq as seen."""
        if verdict == STALE:
            source.sender.late += 1
        if seq < source.first:
            # Before the first seq. The seqs in between were not seen either, but are not missing.
            between = ((1 << (source.first - seq - 1)) - 1) << (source.last - source.first + 1)
            source.absent |= between
            source.first = seq
            return
        bit = 1 << (source.last - seq)
        source.absent ^= bit
        if source.missing & bit:
            source.missing ^= bit
            self.missing -= 1
        elif verdict != STALE:
            source.sender.late += 1

    def _new_epoch(self, source: Source, seq: int) -> None:
        self._lose_missing(source)
        source.epoch += 1
        source.first = source.last = seq
        source.absent = 0

    def _lose_missing(self, source: Source) -> None:
        """Count all missing seqs of this epoch as lost."""
        if source.missing:
            self._lose(source, source.missing.bit_count())
            source.missing = 0

    def _lose(self, source: Source, gone: int) -> None:
        """Count missing messages as lost."""
        self.missing -= gone
        self.lost += gone
        source.sender.lost += gone
        lost = self.lost_by_source
        lost[source.src] = lost.get(source.src, 0) + gone
        if len(lost) > 2 * MAX_LOST_BY_SOURCE:
            self.lost_by_source = dict(nlargest(MAX_LOST_BY_SOURCE, lost.items(), key=itemgetter(1)))

    def _lose_reported(self, source: Source, gone: int) -> None:
        """Count messages as lost that only a report has shown to be missing."""
        self.missing += gone
        self._lose(source, gone)

    def _count_jump(self) -> None:
        self.jumps += 1

    def take_report(self, src: bytes, first: int, following: int, now: float) -> bool:
        """Take what a report says about a source: the first number of its run, and the next one. False if that cannot
        be."""
        source = self._lru.get(src)
        return source is None or self.reported.report(source, first, following, now, self._horizon)

    def _close_gap(self) -> None:
        """Count what is missing of the oldest gap as lost."""
        _, source, epoch, low, high = self._gaps.popleft()
        back = source.last - high
        if source.epoch != epoch or not source.missing or back >= self._sanity:
            return
        seqs = ((1 << (high - low + 1)) - 1) << back
        late = source.missing & seqs
        source.missing ^= late
        if late:
            self._lose(source, late.bit_count())

    def _evict(self) -> None:
        source = self._lru.oldest
        if source is not None:
            self._remove(source)
            self.evicted += 1

    def _remove(self, source: Source) -> None:
        self._lru.remove(source)
        self._lose_missing(source)
        self.reported.forget(source.src)
        if self.tracker_log is not None:
            self.tracker_log.log_removal(source.src)

    def sweep(self, now: float) -> bool:
        """Count old gaps as losses and remove expired trackers and identities; True if more can be done now. Cheap;
        call it often."""
        lost, more = self.lost, all(self._sweep_one(now) for _ in range(SWEEP_STEP))
        if self.lost > lost and self.tracker_log is not None:
            self.tracker_log.log_losses(now)
        return more

    def _sweep_one(self, now: float) -> bool:
        """Do one thing that is due; False if there is none."""
        if self._gaps and self._gaps[0][0] <= now:
            self._close_gap()
        elif self._released and self._released[0][0] <= now:
            self._expire_identity()
        elif self.reported.sweep(self._lru.get, now):
            pass
        elif len(self._lru) > self._max:
            self._evict()
        else:
            source = self._lru.oldest
            # The order is at most RANK_SECONDS late, so the next source is hardly older.
            if source is None or source.heard + self._expire > now:
                return False
            self.forget(source)
        return True

    # -- snapshot and replay (`tracker_snapshot`, `tracker_replay`)

    def shards(self) -> int:
        """Return the number of parts into which the trackers are divided."""
        return self._index.shards()

    def shard(self, number: int) -> list[Source]:
        """Return the trackers of one part. A src stays in its part."""
        return self._index.values(number)

    def is_local(self, src: bytes) -> bool:
        return src in self._own

    def local_identity(self, src: bytes) -> LocalIdentity | None:
        return self._own.get(src)

    def local_srcs(self) -> list[bytes]:
        return list(self._own)

    def restore(
        self, src: bytes, seqs: tuple[int, int, int, int, int], heard: float, rank: float, now: float
    ) -> Source:
        """Replace or add a tracker as it was at a time; ``seqs`` are first, last, absent, missing and epoch. `settle`
        must follow."""
        first, last, absent, missing, epoch = seqs
        source = self._lru.get(src)
        if source is None:
            source = self.start(src, last, heard)
        self.missing -= source.missing.bit_count()
        source.first, source.last, source.epoch = first, last, epoch
        source.heard, source.rank = heard, rank
        source.absent = source.missing = 0
        if absent:
            source.absent = absent & self._mask & ~1
            source.missing = missing & source.absent
            self.missing += source.missing.bit_count()
            self._open_gap_for_all(source, now)
        return source

    def _open_gap_for_all(self, source: Source, now: float) -> None:
        """Open one gap for all that is missing of a source."""
        missing = source.missing
        if missing:
            low, high = missing.bit_length() - 1, (missing & -missing).bit_length() - 1
            self._open_gap(source, source.last - low, source.last - high, now)

    def restore_own(self, src: bytes, until: float, first: int, following: int) -> None:
        """Restore a local identity under which the daemon before used the seqs from ``first`` up to ``following``. It
        expires then, unless it is claimed."""
        own = self._own.get(src)
        if own is None:
            own = self._own[src] = LocalIdentity()
            self.release(src, until)
        if own.next:
            first, following = min(first, own.first), max(following, own.next)
        own.first, own.next = first, following

    def drop(self, src: bytes) -> None:
        """Remove a tracker without counting it as expired."""
        source = self._lru.get(src)
        if source is not None:
            self._remove(source)

    def pass_time(self, now: float) -> None:
        """Count all due gaps as losses."""
        while self._gaps and self._gaps[0][0] <= now:
            self._close_gap()

    def settle(self, now: float) -> None:
        """Finish a replay: order the trackers, and give missing seqs the horizon's time from now."""
        self._lru.sort()
        self.senders.reset()
        self._gaps.clear()
        for source in self._lru.oldest_first():
            self._open_gap_for_all(source, now)
