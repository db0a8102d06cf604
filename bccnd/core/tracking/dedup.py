"""Deduplication and loss detection by one tracker per source.

Invariant: the verdict depends only on src, seq, time and whether a link brought the datagram; every table has a cap,
and evictions are counted. Source: BCCN, SEQUENCE NUMBERS AND DEDUP, with these rules where that text is silent:

- Ahead by less than ``sanity``: new; the seqs in between are missing. Ahead by more: a new epoch; the seqs in between
  are lost if a report of the sender, or else its rate, says that it has sent them (`reported_loss`).
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
from bccnd.core.tracking.dedup_rules import DedupRules
from bccnd.core.tracking.local_identities import LocalIdentities, LocalIdentity
from bccnd.core.tracking.loss_by_source import LossBySource
from bccnd.core.tracking.recent_restarts import RecentRestarts
from bccnd.core.tracking.reported_loss import ReportedLoss
from bccnd.core.tracking.sender_counts import NO_SENDER, SenderCounts, SenderTable
from bccnd.core.tracking.source_table import SourceTable
from bccnd.core.wire.bccn1 import UNKNOWN_SRC
from bccnd.core.wire.verdicts import ACCEPTED, DUPLICATE, LAST_ACCEPTED, LOOPED, REORDERED, REPLAYED, RESTART, STALE
from bccnd.native.memory import slot_layout as layout
from bccnd.native.memory.private_memory import private_memory
from bccnd.native.memory.slots import SlotMemory
from bccnd.native.memory.source_view import Source

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
#: what trackers count
_COUNTED: Final = ("lost", "restarts", "jumps", "conflicts", "expired", "evicted", "own_evicted", "restarts_evicted")

#: not a verdict: the anonymous src, for `AnonymousDedup`
UNKNOWN_SENDER: Final = -2


def is_clock(seq: int) -> bool:
    """Whether a seq is a wall clock in microseconds."""
    return CLOCK_MIN <= seq < _CLOCK_END


class TrackerTable:
    """All trackers, one per src, shared by all segments; a source is named by its slot in ``memory``."""

    def __init__(self, rules: DedupRules, memory: SlotMemory | None = None) -> None:
        self.memory = private_memory() if memory is None else memory
        self.table = SourceTable(self.memory)
        #: (deadline, source, its epoch, first missing seq, last missing seq), oldest first
        self._gaps: deque[tuple[float, Source, int, int, int]] = deque()
        self.missing = 0
        #: evicted: before they expired
        self.counted = NamedCounts(self.memory, "sources", _COUNTED)
        self.local = LocalIdentities(self.memory, self.counted)
        self._restarts = RecentRestarts(self.memory, self.counted, LINK_PATIENCE)
        self.losses = LossBySource(self.memory)
        #: counters by sending host, and those of each source by its slot
        self.senders = SenderTable()
        #: losses that reports of senders show
        self.reported = ReportedLoss(self._lose_reported, self._count_jump, self.memory)
        self._sender_of: list[SenderCounts] = []
        self.configure(rules)

    def configure(self, rules: DedupRules) -> None:
        """Change the rules; the trackers stay."""
        self.rules = rules
        self._sanity = rules.sanity
        self._mask = (1 << rules.sanity) - 1
        self._horizon = rules.horizon
        self._late = REORDERED if rules.late == "deliver" else STALE
        self._monotonic = rules.freshness == "monotonic"
        self._expire = rules.expire
        self._linked = rules.linked
        #: `sweep` evicts what exceeds a lowered cap
        self._max = rules.max_sources

    def load(self, now: float, clock_us: int) -> None:
        """Continue with what the memory has from the daemon before; missing seqs have the horizon's time from now.

        Local identities stay so for `RELEASE_DELAY`, or until they are claimed; ``clock_us``: see `LocalIdentities`.
        """
        self.table.load()
        self.local.load(now + RELEASE_DELAY, clock_us)
        self._restarts.load()
        self.losses.load()
        self.reported.load()
        for source in self.all():
            self._set_sender(source.number, source.src, now)
            if source.window:
                self.missing += source.missing.bit_count()
                self._open_gap_for_all(source, now)

    def __len__(self) -> int:
        return self.table.count

    def __contains__(self, src: bytes) -> bool:
        return self.find(src, 0, len(src)) >= 0

    def all(self) -> list[Source]:
        """Return all sources."""
        return [self.memory.source(number) for number in self.memory.numbers(layout.SOURCE)]

    def latest(self, count: int) -> list[Source]:
        """Return up to ``count`` sources, the most recently heard first."""
        return list(islice(self.table.newest_first(), count))

    def alive(self, now: float, seconds: float) -> int:
        """Count the sources that were heard within the last ``seconds``."""
        return self.table.count_heard_since(now - seconds, RANK_SECONDS)

    def get(self, src: bytes) -> Source | None:
        number = self.find(src, 0, len(src))
        return None if number < 0 else self._source(number)

    def _source(self, number: int) -> Source:
        """Return the source in a slot, with the counters of its host."""
        source = self.memory.source(number)
        source.sender = self._sender_of[number]
        return source

    def epoch(self, src: bytes) -> int:
        """Return a source's number of epochs, from 1; 0 if it is not tracked."""
        source = self.get(src)
        return 0 if source is None else source.epoch

    def forget(self, source: Source) -> None:
        """Remove a tracker, as if its source had never been heard."""
        self._remove(source.number)
        self.counted.add("expired")

    def claim(self, src: bytes) -> LocalIdentity:
        """Make ``src`` a local identity: datagrams under it are this host's own broadcasts."""
        self.drop(src)
        return self.local.claim(src)

    def judge(self, src: bytes, seq: int, now: float, from_link: bool = False) -> int:
        """Return the verdict on a well-formed datagram, or UNKNOWN_SENDER."""
        number = self.find(src, 0, len(src))
        return self.judge_new(src, seq, now) if number < 0 else self.follow(number, seq, now, from_link)

    def find(self, raw: bytes, start: int, end: int) -> int:
        """Return the slot of the source whose src is ``raw[start:end]``; -1 if it is not tracked."""
        return self.memory.find(raw, start, end)

    def follow(self, number: int, seq: int, now: float, from_link: bool = False) -> int:
        """Return the verdict on the next datagram of the tracked source in a slot."""
        at = self.memory.at(number)
        self.memory.save_head(at)
        # Not `last + 1`, which overflows at the highest seq.
        if seq > at.last and seq - at.last == 1 and at.absent_size == 0:
            at.last = seq
            verdict = ACCEPTED
        else:
            verdict = self._place(number, seq, now, from_link)
            if verdict > LAST_ACCEPTED:
                return verdict
        if now > at.heard:  # what waited in a link or in another socket is older
            at.heard = now
            if now >= at.rank:
                self.table.touch(number)
                at.rank = now + RANK_SECONDS
                self._hear_sender(number, now)
        sender = self._sender_of[number]
        sender.received += 1
        return verdict

    def _set_sender(self, number: int, src: bytes, now: float) -> None:
        """Remember the counters of the host of a source."""
        senders = self._sender_of
        senders.extend([NO_SENDER] * (number + 1 - len(senders)))
        senders[number] = self.senders.of(src, now)

    def _hear_sender(self, number: int, now: float) -> None:
        """Note that the host of a source was heard."""
        if self._sender_of[number].evicted:
            self._set_sender(number, self.memory.key(number), now)
        self._sender_of[number].heard = now

    def count_duplicate(self, src: bytes) -> None:
        """Count a datagram found to be a duplicate for its sending host."""
        sender = self.senders.get(src)
        if sender is not None:
            sender.duplicate += 1

    def judge_new(self, src: bytes, seq: int, now: float) -> int:
        """Return the verdict on a datagram of a legal src that is not tracked, or UNKNOWN_SENDER."""
        if src == UNKNOWN_SRC:
            return UNKNOWN_SENDER
        if self.local.has(src):
            return LOOPED
        if self.table.count >= self._max:
            self._evict()
        number = self.start(src, seq, now)
        if number >= 0:
            self._sender_of[number].received += 1
        return ACCEPTED

    def start(self, src: bytes, seq: int, now: float) -> int:
        """Track a legal src that is neither tracked nor local from this datagram on, whatever the cap; return its slot,
        or -1 if there is no memory for it."""
        rank = now + RANK_SECONDS
        number = self.table.add(src, seq, now, rank)
        if number < 0 and self.table.count:
            self._evict()
            number = self.table.add(src, seq, now, rank)
        if number >= 0:
            self._set_sender(number, src, now)
        return number

    def _place(self, number: int, seq: int, now: float, from_link: bool) -> int:
        """Judge any seq but the next one of a source without gaps."""
        at = self.memory.at(number)
        last: int = at.last
        step = seq - last
        if step >= self._sanity:
            if from_link and self._restarts.predates(self.memory.key(number), seq, now):
                return DUPLICATE
            self.reported.skip(self._source(number), seq, now)
            self._new_epoch(number, seq)
            return ACCEPTED
        if step > 0:
            self._advance(number, step, now)
            return ACCEPTED
        verdict = self._backward(number, seq, now, from_link)
        if verdict == RESTART:
            self.counted.add("restarts")
            self._restarts.remember(self.memory.key(number), max(now, at.heard), last)
            self.reported.forget(self.memory.key(number))
            self._new_epoch(number, seq)
        elif verdict == self._late:
            self._mark(number, seq, verdict)
        return verdict

    def _backward(self, number: int, seq: int, now: float, from_link: bool) -> int:
        """Return the verdict on a seq that is not above the last one."""
        at = self.memory.at(number)
        last: int = at.last
        back = last - seq
        by_clock = self._linked and not self._monotonic and is_clock(seq) and is_clock(last)
        careful = from_link or by_clock
        patience = LINK_PATIENCE if careful else self._horizon
        if now - at.heard > patience or (back >= self._sanity and not careful):
            return REPLAYED if self._monotonic else RESTART
        if back >= self._sanity:
            return DUPLICATE
        return self._late if seq < at.first or self.memory.absent(number) >> back & 1 else DUPLICATE

    def predict(self, src: bytes, seq: int, now: float) -> int:
        """Return the verdict that a datagram would get, or UNKNOWN_SENDER; changes nothing."""
        number = self.find(src, 0, len(src))
        if number >= 0:
            at = self.memory.at(number)
            return ACCEPTED if seq > at.last else self._backward(number, seq, now, False)
        if src == UNKNOWN_SRC:
            return UNKNOWN_SENDER
        return LOOPED if self.local.has(src) else ACCEPTED

    def _advance(self, number: int, step: int, now: float) -> None:
        """Move the window by ``step``; the seqs in between are missing."""
        at = self.memory.at(number)
        passed = ((1 << (step - 1)) - 1) << 1
        fresh = step - 1
        if self.reported.settled:
            fresh = self.reported.pass_over(self._source(number), at.last + step)
        missing = self.memory.missing(number) << step
        gone = (missing >> self._sanity).bit_count()
        if gone:
            self._lose(number, gone)
        at.last += step
        absent = (self.memory.absent(number) << step | passed) & self._mask
        self._set_window(number, absent, (missing | ((1 << fresh) - 1) << 1) & self._mask)
        if fresh:
            self.missing += fresh
            last: int = at.last
            self._open_gap(self.memory.source(number), last - fresh, last - 1, now)

    def _set_window(self, number: int, absent: int, missing: int) -> None:
        """Set which seqs were not seen. Where the system has no memory for them, they are lost, and all were seen."""
        if not self.memory.set_window(number, absent, missing):
            self._lose(number, missing.bit_count())

    def _open_gap(self, source: Source, low: int, high: int, now: float) -> None:
        """Count what is missing of these seqs as lost after the horizon."""
        if len(self._gaps) >= MAX_GAPS:
            self._close_gap()
        self._gaps.append((now + self._horizon, source, source.epoch, low, high))

    def _mark(self, number: int, seq: int, verdict: int) -> None:
        """Mark a seq as seen."""
        at = self.memory.at(number)
        late = verdict == STALE
        first: int = at.first
        last: int = at.last
        absent, missing = self.memory.absent(number), self.memory.missing(number)
        if seq < first:
            # Before the first seq. The seqs in between were not seen either, but are not missing.
            self.memory.save(at)
            absent |= ((1 << (first - seq - 1)) - 1) << (last - first + 1)
            at.first = seq
        else:
            bit = 1 << (last - seq)
            absent ^= bit
            if missing & bit:
                missing ^= bit
                self.missing -= 1
            else:
                late = True
        if late:
            self._sender_of[number].late += 1
        self._set_window(number, absent, missing)

    def _new_epoch(self, number: int, seq: int) -> None:
        at = self.memory.at(number)
        self._lose_missing(number)
        self.memory.save(at)
        at.epoch += 1
        at.first = at.last = seq

    def _lose_missing(self, number: int) -> None:
        """Count all missing seqs of this epoch as lost; none is absent then."""
        at = self.memory.at(number)
        if at.absent_size:
            missing = self.memory.missing(number)
            if missing:
                self._lose(number, missing.bit_count())
            self.memory.set_window(number, 0, 0)

    def _lose(self, number: int, gone: int) -> None:
        """Count missing messages as lost."""
        self.missing -= gone
        self.counted.add("lost", gone)
        self._sender_of[number].lost += gone
        self.losses.add(self.memory.key(number), gone)

    def _lose_reported(self, source: Source, gone: int) -> None:
        """Count messages as lost that only a report has shown to be missing."""
        self.missing += gone
        self._lose(source.number, gone)

    def _count_jump(self) -> None:
        self.counted.add("jumps")

    def take_report(self, src: bytes, first: int, following: int, now: float) -> bool:
        """Take what a report says about a source: the first number of its run, and the next one. False if that cannot
        be."""
        source = self.get(src)
        return source is None or self.reported.report(source, first, following, now, self._horizon)

    def _close_gap(self) -> None:
        """Count what is missing of the oldest gap as lost."""
        _, source, epoch, low, high = self._gaps.popleft()
        if not source.valid or source.epoch != epoch:
            return
        number, last = source.number, source.last
        back = last - high
        missing = self.memory.missing(number)
        if not missing or back >= self._sanity:
            return
        late = missing & ((1 << (high - low + 1)) - 1) << back
        if late:
            self._set_window(number, self.memory.absent(number), missing ^ late)
            self._lose(number, late.bit_count())

    def _evict(self) -> None:
        number = self.table.oldest()
        if number:
            self._remove(number)
            self.counted.add("evicted")

    def _remove(self, number: int) -> None:
        self._lose_missing(number)
        self.reported.forget(self.memory.key(number))
        self.table.remove(number)
        senders = self._sender_of
        senders[number] = NO_SENDER
        while senders and senders[-1] is NO_SENDER:
            senders.pop()

    def sweep(self, now: float) -> bool:
        """Count old gaps as losses and remove expired trackers and identities; True if more can be done now. Cheap;
        call it often."""
        return all(self._sweep_one(now) for _ in range(SWEEP_STEP))

    def _sweep_one(self, now: float) -> bool:
        """Do one thing that is due; False if there is none."""
        mine = self.memory.start()
        more = self._do_one(now)
        if mine:
            self.memory.commit()
        return more

    def _do_one(self, now: float) -> bool:
        if self._gaps and self._gaps[0][0] <= now:
            self._close_gap()
        elif self.local.sweep(now) or self._restarts.sweep(now) or self.reported.sweep(self.get, now):
            pass
        elif self.table.count > self._max:
            self._evict()
        else:
            number = self.table.oldest()
            # The order is at most RANK_SECONDS late, so the next source is hardly older.
            if not number or self.memory.source(number).heard + self._expire > now:
                return False
            self.forget(self.memory.source(number))
        return True

    def _open_gap_for_all(self, source: Source, now: float) -> None:
        """Open one gap for all that is missing of a source."""
        missing = source.missing
        if missing:
            low, high = missing.bit_length() - 1, (missing & -missing).bit_length() - 1
            self._open_gap(source, source.last - low, source.last - high, now)

    def drop(self, src: bytes) -> None:
        """Remove a tracker without counting it as expired."""
        number = self.find(src, 0, len(src))
        if number >= 0:
            mine = self.memory.start()
            self._remove(number)
            if mine:
                self.memory.commit()
