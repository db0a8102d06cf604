"""Events of sources as a line of words, applied to a tracker table.

    5 8 @1 6:stale ~6:duplicate +2 lost=1 b.7 b.report:9

- ``8``: a datagram with this seq is accepted; ``6:stale``: it gets this verdict; ``~6``: it comes from a link
- ``3..9``: all of these are accepted; ``3..9/100``: at 100 a second, from now on
- ``@3.25``: the time from now on, in seconds; initially 0; ``+2``: so much later, all that is due is done
- ``sweep``, ``drop``, ``forget``, ``claim``, ``release:30``: the method of `TrackerTable`, with the expiry of a release
- ``report:9``: the sender reports that it has sent its run from 1 to 8; ``report:9:5``: its run from 5; ``refused:9``:
  such a report is refused
- ``restart``: the next daemon goes on; its counters begin at 0
- ``uses:5:9``: the local identity has used the seqs from 5 to 8; ``used:5``: this seq is one of them; ``foreign:9``: it
  is that of another sender
- ``limits:late=deliver``: this limit from now on
- ``lost=1``: this counter of `TrackerTable`; ``epoch=2``: the source's epoch; ``tracked=0``: the number of trackers;
  ``open=1``: what may still arrive; ``late=1``: late for all hosts; ``closed=0``: the number of closed tails;
  ``latest=b,1``: the tracked sources, the one heard last first; ``a=6/0/1/2``: received, lost, late and copies of a
  host

``b.``, ``c.`` and so on before a word: it is about another source; ``a/p/1.``: about this one. No counter of a sending
host ever falls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from bccnd.core.formats.image_sections import Section, pack_section, unpack_sections
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import HeartbeatRules, Liveness
from bccnd.core.tracking.tracker_image import (
    identity_section,
    resume_identities,
    resume_trackers,
    tracker_sections,
)
from bccnd.core.wire.verdicts import DUPLICATE, LAST_ACCEPTED, NAMES

SRC = b"host/program/1"
COUNTERS = ("missing", "lost", "restarts", "jumps")


def receive(sources: TrackerTable, src: bytes, seq: int, now: float, from_link: bool = False) -> int:
    """Return the verdict as `Ingress` does for a well-formed datagram."""
    verdict = sources.judge(src, seq, now, from_link)
    if verdict == DUPLICATE:
        sources.count_duplicate(src)
    return verdict


def counter(sources: TrackerTable, name: str, src: bytes = SRC) -> int:
    others: dict[str, Callable[[], int]] = {
        "epoch": lambda: sources.epoch(src),
        "tracked": lambda: len(sources),
        "open": sources.count_missing,
        "late": lambda: hosts_totals(sources)[2],
        "closed": lambda: len(sources.reported.closed),
        "missing": lambda: int(sources.missing),
    }
    return others[name]() if name in others else sources.counted[name]


class Player:
    """Plays words. ``accepted`` counts the accepted datagrams."""

    def __init__(self, sources: TrackerTable) -> None:
        self._sources = sources
        self._now = 0.0
        self.counts = dict.fromkeys(COUNTERS, 0)
        self.accepted = 0

    def play(self, word: str, where: str) -> None:
        prefix, dot, rest = word.partition(".")
        src = SRC
        if dot and (prefix.isalpha() or "/" in prefix):
            src, word = (b"" if "/" in prefix else b"host/program/") + prefix.encode(), rest
        verb, _, argument = word.partition(":")
        if word[0] in "@+":
            self._now = float(word[1:]) + (self._now if word[0] == "+" else 0)
            while word[0] == "+" and self._sources.sweep(self._now):
                pass
        elif verb in self._events:
            self._events[verb](self, src, argument)
        elif "=" in word:
            name, _, expected = word.partition("=")
            self._check(src, name, expected, where)
        elif ".." in word:
            seqs, _, rate = word.partition("/")
            first, _, last = seqs.partition("..")
            for seq in range(int(first), int(last) + 1):
                self._receive(src, seq, "accepted", where)
                if rate:
                    self.play(f"+{1 / int(rate)}", where)
        else:
            self._receive(src, int(verb.lstrip("~")), argument or "accepted", where, from_link=verb[0] == "~")

    def _receive(self, src: bytes, seq: int, expected: str, where: str, from_link: bool = False) -> None:
        verdict = receive(self._sources, src, seq, self._now, from_link)
        assert (where, NAMES[verdict]) == (where, expected)
        self.accepted += verdict <= LAST_ACCEPTED

    def _check(self, src: bytes, name: str, expected: str, where: str) -> None:
        senders = list(self._sources.senders)
        hosts = {one.host.decode(): f"{one.received}/{one.lost}/{one.late}/{one.duplicate}" for one in senders}
        if name == "latest":
            found = ",".join(one.src.decode().rpartition("/")[2] for one in self._sources.latest(9))
        else:
            found = hosts[name] if name in hosts else str(counter(self._sources, name, src))
            self.counts[name] = 0 if name in hosts else int(expected)
        assert (where, found) == (where, expected)

    def _restart(self, _src: bytes, _: str) -> None:
        self._sources, _liveness = successor(self._sources, Liveness(self._sources, HeartbeatRules(), 0.0), self._now)
        self.counts, self.accepted = dict.fromkeys(COUNTERS, 0), 0

    def end(self, received: int) -> None:
        """Compare the counters; so much was received before the first word."""
        assert self.totals()[:2] == (received + self.accepted, self._sources.counted["lost"])
        for name in COUNTERS:
            assert (name, counter(self._sources, name)) == (name, self.counts[name])

    def totals(self) -> tuple[int, int, int]:
        """Return what all sending hosts together have: received, lost, late."""
        return hosts_totals(self._sources)

    def _forget(self, src: bytes, _: str) -> None:
        source = self._sources.get(src)
        assert source is not None
        self._sources.forget(source)

    def _report(self, src: bytes, seqs: str, *, taken: bool = True) -> None:
        following, _, first = seqs.partition(":")
        assert self._sources.take_report(src, int(first or 1), int(following), self._now) == taken

    def _use(self, src: bytes, seqs: str) -> None:
        own = self._sources.claim(src)
        own.first, own.next = map(int, seqs.split(":"))

    def _look(self, src: bytes, seq: str, *, foreign: bool = False) -> None:
        conflicts = self._sources.counted["conflicts"]
        self._sources.local.check_conflict(src, int(seq))
        assert self._sources.counted["conflicts"] - conflicts == foreign

    def _limit(self, _: bytes, limit: str) -> None:
        name, _equals, value = limit.partition("=")
        changed: dict[str, Any] = {name: int(value) if value.isdigit() else value}
        self._sources.limits.refresh(**changed)

    _events: ClassVar[dict[str, Callable[[Player, bytes, str], object]]] = {
        "sweep": lambda self, _src, _: self._sources.sweep(self._now),
        "claim": lambda self, src, _: self._sources.claim(src),
        "release": lambda self, src, expiry: self._sources.local.release(src, float(expiry)),
        "restart": _restart,
        "drop": lambda self, src, _: self._sources.drop(src),
        "forget": _forget,
        "report": _report,
        "refused": partial(_report, taken=False),
        "uses": _use,
        "used": _look,
        "foreign": partial(_look, foreign=True),
        "limits": _limit,
    }


def hosts_totals(sources: TrackerTable) -> tuple[int, int, int]:
    """Return what all sending hosts together have: received, lost, late."""
    hosts = list(sources.senders)
    return sum(host.received for host in hosts), sum(host.lost for host in hosts), sum(host.late for host in hosts)


def successor(left: TrackerTable, liveness: Liveness, now: float) -> tuple[TrackerTable, Liveness]:
    """Return the trackers of the next daemon, and their liveness."""
    sections: dict[str, list[Section]] = {}
    for written in (*tracker_sections(left, AnonymousDedup(left.limits), liveness), identity_section(left)):
        (section,) = unpack_sections(pack_section(written))
        sections.setdefault(section.kind, []).append(section)
    sources = TrackerTable(left.limits)
    heir = Liveness(sources, liveness.rules, now)
    resume_trackers(sections, sources, AnonymousDedup(left.limits), heir, now, ordered=True)
    resume_identities(sections, sources, now)
    return sources, heir


def play(sources: TrackerTable, scenario: str) -> None:
    """Play a scenario; at its end each of COUNTERS has the value given last, or 0, and the hosts have all of it."""
    player = Player(sources)
    before = begun = player.totals()
    for number, word in enumerate(scenario.split()):
        player.play(word, f"word {number}, {word}")
        if word == "restart":
            before = begun = player.totals()
        totals = player.totals()
        assert all(now >= earlier for now, earlier in zip(totals, before, strict=True)), word
        before = totals
    player.end(begun[0])
