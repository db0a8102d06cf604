"""Events of sources as a line of words, applied to a tracker table.

    5 8 @1 6:stale ~6:duplicate +2 lost=1 b.7 b.report:9

- ``8``: a datagram with this seq is accepted; ``6:stale``: it gets this verdict; ``~6``: it comes from a link
- ``3..9``: all of these are accepted; ``3..9/100``: at 100 a second, from now on
- ``@3.25``: the time from now on, in seconds; initially 0; ``+2``: so much later, all that is due is done
- ``sweep``, ``drop``, ``forget``, ``claim``, ``release:30``: the method of `TrackerTable`, with the expiry of a release
- ``report:9``: the sender reports that it has sent its run from 1 to 8; ``report:9:5``: its run from 5; ``refused:9``:
  such a report is refused
- ``lost=1``: this counter of `TrackerTable`; ``epoch=2``: the source's epoch; ``tracked=0``: the number of trackers;
  ``open=1``: what may still arrive; ``late=1``: late for all hosts; ``closed=0``: the number of closed tails

``b.``, ``c.`` and so on before a word: it is about another source. No counter of a sending host ever falls.
"""

from __future__ import annotations

from collections.abc import Callable

from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.wire.verdicts import LAST_ACCEPTED, NAMES

SRC = b"host/program/1"
COUNTERS = ("missing", "lost", "restarts", "jumps")


def receive(sources: TrackerTable, src: bytes, seq: int, now: float, from_link: bool = False) -> int:
    """Return the verdict as `Ingress` does for a well-formed datagram."""
    return sources.judge(src, seq, now, from_link)


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
        sources = self._sources
        prefix, dot, rest = word.partition(".")
        src = SRC
        if dot and prefix.isalpha():
            src, word = b"host/program/" + prefix.encode(), rest
        verb, _, argument = word.partition(":")
        if word[0] in "@+":
            self._now = float(word[1:]) + (self._now if word[0] == "+" else 0)
            while word[0] == "+" and sources.sweep(self._now):
                pass
        elif verb == "sweep":
            sources.sweep(self._now)
        elif verb == "claim":
            sources.claim(src)
        elif verb == "release":
            sources.local.release(src, float(argument))
        elif verb == "drop":
            sources.drop(src)
        elif verb == "forget":
            source = sources.get(src)
            assert source is not None, where
            sources.forget(source)
        elif verb in ("report", "refused"):
            following, _, first = argument.partition(":")
            taken = sources.take_report(src, int(first or 1), int(following), self._now)
            assert (where, taken) == (where, verb == "report")
        elif "=" in word:
            name, _, count = word.partition("=")
            assert (where, counter(sources, name, src)) == (where, int(count))
            self.counts[name] = int(count)
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


def hosts_totals(sources: TrackerTable) -> tuple[int, int, int]:
    """Return what all sending hosts together have: received, lost, late."""
    hosts = list(sources.senders)
    return sum(host.received for host in hosts), sum(host.lost for host in hosts), sum(host.late for host in hosts)


def play(sources: TrackerTable, scenario: str) -> None:
    """Play a scenario; at its end each of COUNTERS has the value given last, or 0, and the hosts have all of it."""
    player, before = Player(sources), hosts_totals(sources)
    received = before[0]
    for number, word in enumerate(scenario.split()):
        player.play(word, f"word {number}, {word}")
        totals = hosts_totals(sources)
        assert all(now >= earlier for now, earlier in zip(totals, before, strict=True)), word
        before = totals
    assert before[:2] == (received + player.accepted, sources.counted["lost"])
    for name in COUNTERS:
        assert (name, counter(sources, name)) == (name, player.counts[name])
