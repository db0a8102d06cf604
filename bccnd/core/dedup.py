"""Per-source trackers: what is new, what came before, what came late, what is missing and what is lost.

Law: a datagram is judged by its src, its seq and the time alone; every table here has a cap, and what falls out
of one is counted. Source: BCCN, SEQUENCE NUMBERS AND DEDUP, with the rules below where that text is silent.

- Ahead by less than ``sanity``: new; the seqs in between are missing. Ahead by more: a new epoch, no loss.
- Behind by ``sanity`` or more, or not new and later than ``horizon`` after the last accepted one: a restart.
- Behind by less: a duplicate if it was seen, else late.
- Missing seqs are lost once they are older than ``horizon`` or fall out of the window of ``sanity``.
- What a link brings (``from_link``) may be a copy that went a long way: behind by whatever, it is a restart only when
  the source has been silent for `LINK_PATIENCE`; and ahead of a restart that we know of, it may be from before that.
- Where segments are ``linked``, so may what a bridge has broadcast here: a source that counts by the clock (`is_clock`)
  is taken for restarted below its last number only after `LINK_PATIENCE`. Elsewhere no copy comes that late.

A window is kept as the set of seqs *not* seen, one bit each, so that a source without gaps costs no bit work.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from bccnd.core.bccn1 import UNKNOWN_SRC
from bccnd.core.lru import LruTable, Source
from bccnd.core.verdicts import ACCEPTED, DUPLICATE, LAST_ACCEPTED, LOOPED, REORDERED, REPLAYED, RESTART, STALE

if TYPE_CHECKING:
    from bccnd.core.tracker_log import TrackerLog

#: open gaps remembered for their age: at line rate of one gap per datagram this bounds a few MB, and a gap that
#: falls out is only called lost a moment early
MAX_GAPS: Final = 65_536
#: identities of clients that have left and whose last broadcasts may still come in
MAX_RELEASED: Final = 65_536
#: seconds within which the order of eviction may be off; spares the reordering for every datagram
RANK_SECONDS: Final = 1.0
#: things done per call of `sweep`, so that no call lasts longer than a fraction of a millisecond
SWEEP_STEP: Final = 128

#: seconds after which no copy is still on its way over links: several of them in a row, each of which stands still for
#: as long as a connection survives that
LINK_PATIENCE: Final = 30.0
#: seqs from here up to there are clocks in microseconds, as ours are, from 2001 to 2096: a source that counts like that
#: does not begin again lower. Nanoseconds and random numbers are above.
CLOCKED: Final = 10**15
_NO_CLOCK: Final = 4 * 10**15
#: sources of which it is remembered how much of them was lost; twice as many until the least are left out
MAX_LOSERS: Final = 256
#: restarts remembered for copies from before them
MAX_ENDED: Final = 4096

#: not verdicts: a src that was not heard before, to be looked at with `begin`, and one that says nothing, for which
#: `AnonymousDedup` decides
UNHEARD: Final = -1
UNKNOWN_SENDER: Final = -2


@dataclass(frozen=True)
class DedupRules:
    """The rules in force; times in seconds."""

    sanity: int = 1024
    horizon: float = 2.0
    deliver_late: bool = False
    monotonic: bool = False
    expire: float = 86_400.0
    max_sources: int = 100_000
    linked: bool = False


def is_clock(seq: int) -> bool:
    """Whether a seq is the clock in microseconds."""
    return CLOCKED <= seq < _NO_CLOCK


class LocalIdentity:
    """One of our own identities: the seqs from ``first`` up to ``next`` were given by us. ``until`` is when it ceases
    to be ours, ``reported`` whether somebody else was found to speak under it."""

    __slots__ = ("first", "next", "reported", "until")

    def __init__(self) -> None:
        self.first = self.next = 0
        self.until = float("inf")
        self.reported = False


class TrackerTable:
    """All trackers of this host, one per src, shared by all segments."""

    def __init__(self, rules: DedupRules) -> None:
        self._roster = LruTable(rules.max_sources)
        self._index = self._roster.index
        #: where it is written down who is given up and who is ours; the datagrams are written down by who feeds them
        self.tracker_log: TrackerLog | None = None
        #: our own identities, among them released ones whose time is not over
        self._own: dict[bytes, LocalIdentity] = {}
        self._released: deque[tuple[float, bytes]] = deque()
        #: whether what is judged now came by a link
        self.from_link = False
        #: when sources last began anew, and how far they had come before
        self._ended: dict[bytes, tuple[float, int]] = {}
        #: (deadline, source, its epoch, first missing seq, last missing seq), oldest first
        self._gaps: deque[tuple[float, Source, int, int, int]] = deque()
        self.missing = 0
        self.lost = 0
        #: of whom most was lost since the start, and how much
        self.losers: dict[bytes, int] = {}
        self.restarts = 0
        self.jumps = 0
        #: datagrams under an identity of ours that we have not sent
        self.conflicts = 0
        self.expired = 0
        self.evicted = 0
        #: for want of room, and before their time: names of ours that were given up, and restarts of others
        self.own_evicted = 0
        self.restarts_evicted = 0
        self.configure(rules)

    def configure(self, rules: DedupRules) -> None:
        """Put other rules in force; the trackers stay."""
        self._sanity = rules.sanity
        self._mask = (1 << rules.sanity) - 1
        self._horizon = rules.horizon
        self._late = REORDERED if rules.deliver_late else STALE
        self._monotonic = rules.monotonic
        self._expire = rules.expire
        #: whether copies may come late by a bridge
        self._linked = rules.linked
        #: those above it are evicted by `sweep`, a few at a time
        self._max = rules.max_sources

    def __len__(self) -> int:
        return len(self._roster)

    def __contains__(self, src: bytes) -> bool:
        return self._roster.get(src) is not None

    def latest(self, count: int) -> list[Source]:
        """Up to ``count`` sources, the most recently heard first."""
        return list(islice(self._roster.newest_first(), count))

    def alive(self, now: float, seconds: float) -> int:
        """How many sources were heard within the last ``seconds``."""
        return self._roster.heard_since(now - seconds, RANK_SECONDS)

    def get(self, src: bytes) -> Source | None:
        return self._roster.get(src)

    def epoch(self, src: bytes) -> int:
        """The count of a source's epochs, from 1; 0 for one that is not tracked."""
        source = self._roster.get(src)
        return 0 if source is None else source.epoch

    def forget(self, source: Source) -> None:
        """Give a tracker up, as if its source had never been heard."""
        self._remove(source)
        self.expired += 1

    def claim(self, src: bytes) -> LocalIdentity:
        """From now on ``src`` is one of our own: what comes in under it is our own broadcast."""
        own = self._own.setdefault(src, LocalIdentity())
        own.until = float("inf")
        source = self._roster.get(src)
        if source is not None:
            self._remove(source)
        if self.tracker_log is not None:
            self.tracker_log.own(src, own)
        return own

    def release(self, src: bytes, until: float) -> None:
        """``src`` is no longer in use; its last broadcasts may still come in ``until`` then."""
        own = self._own.get(src)
        if own is not None:
            own.until = until
            self._released.append((until, src))
            if len(self._released) > MAX_RELEASED:
                self.own_evicted += 1
                self._end_release()
            if self.tracker_log is not None:
                self.tracker_log.own(src, own)

    def _end_release(self) -> None:
        until, src = self._released.popleft()
        own = self._own.get(src)
        if own is not None and own.until == until:
            del self._own[src]

    def conflict(self, src: bytes, seq: int) -> bool:
        """Look at what was judged LOOPED: a seq that we never gave means that somebody else speaks under our name.

        That is counted; True the first time for this identity.
        """
        own = self._own[src]
        if own.first <= seq < own.next:
            return False
        self.conflicts += 1
        first_time, own.reported = not own.reported, True
        return first_time

    def judge(self, src: bytes, seq: int, now: float) -> int:
        """The verdict on a datagram that is otherwise in order, or UNHEARD."""
        source = self._roster.get(src)
        return UNHEARD if source is None else self.follow(source, seq, now)

    def get_slice(self, raw: bytes, start: int, end: int) -> Source | None:
        """The source whose src is ``raw[start:end]``, if it is tracked."""
        found: Source | None = self._index.get_slice(raw, start, end)
        return found

    def follow(self, source: Source, seq: int, now: float) -> int:
        """The verdict on the next datagram of a source that is tracked."""
        # Not `last + 1`: behind the highest of all seqs there is none, in whatever arithmetic.
        if seq > source.last and seq - source.last == 1 and not source.absent:
            source.last = seq
            verdict = ACCEPTED
        else:
            verdict = self._place(source, seq, now)
            if verdict > LAST_ACCEPTED:
                return verdict
        source.heard = now
        if now >= source.rank:
            self._roster.touch(source)
            source.rank = now + RANK_SECONDS
        return verdict

    def begin(self, src: bytes, seq: int, now: float) -> int:
        """The verdict on the first datagram of a legal src, or UNKNOWN_SENDER."""
        if src == UNKNOWN_SRC:
            return UNKNOWN_SENDER
        if src in self._own:
            return LOOPED
        if len(self._roster) >= self._max:
            self._evict()
        self.start(src, seq, now)
        return ACCEPTED

    def start(self, src: bytes, seq: int, now: float) -> Source:
        """Track a legal src that is not tracked and not our own, from this datagram on, without a look at the cap."""
        source = Source(src, seq, now)
        source.rank = now + RANK_SECONDS
        self._roster.add(source)
        return source

    def _place(self, source: Source, seq: int, now: float) -> int:
        """Any seq but the next one of a source without gaps."""
        step = seq - source.last
        if step >= self._sanity:
            if self.from_link and self._is_over(source.src, seq, now):
                return DUPLICATE
            self.jumps += 1
            self._new_epoch(source, seq)
            return ACCEPTED
        if step > 0:
            self._advance(source, step, now)
            return ACCEPTED
        verdict = self._backward(source, seq, now)
        if verdict == RESTART:
            self.restarts += 1
            self._end_epoch(source, now)
            self._new_epoch(source, seq)
        elif verdict == self._late:
            self._mark(source, seq)
        return verdict

    def _backward(self, source: Source, seq: int, now: float) -> int:
        """The verdict on a seq that is not above the last one."""
        back = source.last - seq
        by_clock = self._linked and not self._monotonic and is_clock(seq) and is_clock(source.last)
        careful = self.from_link or by_clock
        patience = LINK_PATIENCE if careful else self._horizon
        if now - source.heard > patience or (back >= self._sanity and not careful):
            return REPLAYED if self._monotonic else RESTART
        if back >= self._sanity:
            return DUPLICATE
        return self._late if seq < source.first or source.absent >> back & 1 else DUPLICATE

    def _end_epoch(self, source: Source, now: float) -> None:
        """Remember how far a source has come that begins anew."""
        if len(self._ended) >= MAX_ENDED:
            oldest = next(iter(self._ended))
            self.restarts_evicted += now - self._ended.pop(oldest)[0] <= LINK_PATIENCE
        self._ended[source.src] = (now, source.last)

    def _is_over(self, src: bytes, seq: int, now: float) -> bool:
        """Whether a seq may be from before the last restart."""
        when, last = self._ended.get(src, (0.0, -1))
        return seq <= last and now - when <= LINK_PATIENCE

    def foresee(self, src: bytes, seq: int, now: float) -> int:
        """What the verdict on a datagram would be, or UNKNOWN_SENDER; nothing is remembered of it."""
        source = self._roster.get(src)
        if source is not None:
            return ACCEPTED if seq > source.last else self._backward(source, seq, now)
        if src == UNKNOWN_SRC:
            return UNKNOWN_SENDER
        return LOOPED if src in self._own else ACCEPTED

    def _advance(self, source: Source, step: int, now: float) -> None:
        """Move the window on by ``step``; what it passes over is missing."""
        passed = ((1 << (step - 1)) - 1) << 1
        missing = source.missing << step
        gone = (missing >> self._sanity).bit_count()
        if gone:
            self._lose(source, gone)
        source.last += step
        source.absent = (source.absent << step | passed) & self._mask
        source.missing = (missing | passed) & self._mask
        if step > 1:
            self.missing += step - 1
            self._open_gap(source, source.last - step + 1, source.last - 1, now)

    def _open_gap(self, source: Source, low: int, high: int, now: float) -> None:
        """What of these seqs is missing has the horizon's time to come."""
        if len(self._gaps) >= MAX_GAPS:
            self._close_gap()
        self._gaps.append((now + self._horizon, source, source.epoch, low, high))

    def _mark(self, source: Source, seq: int) -> None:
        """Note that a seq was seen that had not been before."""
        if seq < source.first:
            # Older than what we heard first. What lies in between was not seen either, but never missed.
            between = ((1 << (source.first - seq - 1)) - 1) << (source.last - source.first + 1)
            source.absent |= between
            source.first = seq
            return
        bit = 1 << (source.last - seq)
        source.absent ^= bit
        if source.missing & bit:
            source.missing ^= bit
            self.missing -= 1

    def _new_epoch(self, source: Source, seq: int) -> None:
        self._give_up(source)
        source.epoch += 1
        source.first = source.last = seq
        source.absent = 0

    def _give_up(self, source: Source) -> None:
        """What is still missing of this epoch will not come any more."""
        if source.missing:
            self._lose(source, source.missing.bit_count())
            source.missing = 0

    def _lose(self, source: Source, gone: int) -> None:
        """So many of a source's messages are missing no more, but lost."""
        self.missing -= gone
        self.lost += gone
        losers = self.losers
        losers[source.src] = losers.get(source.src, 0) + gone
        if len(losers) > 2 * MAX_LOSERS:
            self.losers = dict(nlargest(MAX_LOSERS, losers.items(), key=itemgetter(1)))

    def _close_gap(self) -> None:
        """The oldest gap is over: what of it is still missing is lost."""
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
        source = self._roster.oldest
        if source is not None:
            self._remove(source)
            self.evicted += 1

    def _remove(self, source: Source) -> None:
        self._roster.remove(source)
        self._give_up(source)
        if self.tracker_log is not None:
            self.tracker_log.gone(source.src)

    def sweep(self, now: float) -> bool:
        """Let time pass: gaps become losses, silent sources are forgotten. Cheap; call it often.

        True when there is more to be done now.
        """
        return all(self._do_one_thing(now) for _ in range(SWEEP_STEP))

    def _do_one_thing(self, now: float) -> bool:
        """Whether something was overdue; now it is done."""
        if self._gaps and self._gaps[0][0] <= now:
            self._close_gap()
        elif self._released and self._released[0][0] <= now:
            self._end_release()
        elif len(self._roster) > self._max:
            self._evict()
        else:
            source = self._roster.oldest
            # Places in line lag behind by RANK_SECONDS at most, so whatever follows is hardly older.
            if source is None or source.heard + self._expire > now:
                return False
            self.forget(source)
        return True

    # -- for the annals, and what comes back from them

    def shards(self) -> int:
        """The parts into which the trackers are divided."""
        return self._index.shards()

    def shard(self, number: int) -> list[Source]:
        """The trackers of one part. A src stays in its part, whatever comes and goes meanwhile."""
        return self._index.values(number)

    def own(self, src: bytes) -> LocalIdentity | None:
        """What is known of an identity of ours; None for any other."""
        return self._own.get(src)

    def own_srcs(self) -> list[bytes]:
        """All identities of ours."""
        return list(self._own)

    def restore(
        self, src: bytes, seqs: tuple[int, int, int, int, int], heard: float, rank: float, now: float
    ) -> Source:
        """A tracker as it was at that time, in place of the one that there may be; ``seqs`` are its first and last one,
        what is absent and what is missing, and its epoch. `settle` must follow."""
        first, last, absent, missing, epoch = seqs
        source = self._roster.get(src)
        if source is None:
            source = self.start(src, last, heard)
        if source.missing:
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
        """One gap for all that is missing of a source."""
        missing = source.missing
        if missing:
            low, high = missing.bit_length() - 1, (missing & -missing).bit_length() - 1
            self._open_gap(source, source.last - low, source.last - high, now)

    def restore_own(self, src: bytes, until: float, first: int, beyond: int) -> None:
        """An identity under which we gave the seqs from ``first`` up to ``beyond`` before we were started. It is ours
        until then, or for as long as it is claimed."""
        own = self._own.get(src)
        if own is None:
            own = self._own[src] = LocalIdentity()
            self.release(src, until)
        if own.next:
            first, beyond = min(first, own.first), max(beyond, own.next)
        own.first, own.next = first, beyond

    def drop(self, src: bytes) -> None:
        """Give a tracker up of which we know that it was given up before; nobody counts it twice."""
        source = self._roster.get(src)
        if source is not None:
            self._remove(source)

    def pass_time(self, now: float) -> None:
        """Gaps become losses, all that are due."""
        while self._gaps and self._gaps[0][0] <= now:
            self._close_gap()

    def settle(self, now: float) -> None:
        """After all was restored: everybody in line, and a last chance for what is missing."""
        self._roster.put_in_order()
        self._gaps.clear()
        for source in self._roster.oldest_first():
            self._open_gap_for_all(source, now)
