"""Events of sources as a line of words, applied to the trackers of a host.

    5 8 @1 6:stale ~6:duplicate +2 lost=1 b.7 b.report:9

- ``8``: a datagram with this seq is accepted; ``6:stale``: it gets this verdict; ``~6``: it comes from a link
- ``3..9``: all of these are accepted; ``3..9/100``: at 100 a second, from now on
- ``beat``, ``message``: the next seq of the source, with a heartbeat or without; ``beat-7``: a heartbeat of 7 s before
- ``@3.25``: the time from now on, in seconds; initially 0; ``+2``: so much later, all that is due of trackers is done;
  ``>8``: until then all that is due is done at each tick; ``look``: now
- ``sweep``, ``drop``, ``forget``, ``claim``, ``release:30``: the method of `TrackerTable`, with the expiry of a release
- ``report:9``: the sender reports that it has sent its run from 1 to 8; ``report:9:5``: its run from 5; ``refused:9``:
  such a report is refused
- ``restart``: the next daemon goes on; its counters begin at 0
- ``uses:5:9``: the local identity has used the seqs from 5 to 8; ``used:5``: this seq is one of them; ``foreign:9``: it
  is that of another sender
- ``limits:late=deliver``: this limit from now on; ``interval:20``, ``dead_after:1``: this rule for heartbeats
- ``=alive,silent``: all changes of the source since the last such word
- ``lost=1``: this counter of `TrackerTable` or `Liveness`; ``epoch=2``, ``interval=4``: the source's epoch, and its
  interval in seconds; ``tracked=0``: the number of trackers; ``open=1``: what may still arrive; ``late=1``: late for
  all hosts; ``closed=0``: the number of closed tails; ``latest=b,1``: the tracked sources, the one heard last first;
  ``a=6/0/1/2``: received, lost, late and copies of a host

``b.``, ``c.`` and so on before a word: it is about another source; ``a/p/1.``: about this one. No counter of a sending
host ever falls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import HeartbeatRules
from bccnd.core.wire.verdicts import LAST_ACCEPTED, NAMES
from tests.core.tracker_hosts import SRC, WATCH, Host

COUNTERS = ("missing", "lost", "restarts", "jumps")


def counter(host: Host, name: str, src: bytes = SRC) -> float:
    sources = host.sources
    others: dict[str, Callable[[], float]] = {
        "epoch": lambda: sources.epoch(src),
        "tracked": lambda: len(sources),
        "open": sources.count_missing,
        "late": lambda: hosts_totals(sources)[2],
        "closed": lambda: len(sources.reported.closed),
        "missing": lambda: int(sources.missing),
        "silent": lambda: host.liveness.silent,
        "interval": lambda: host.source(src).interval,
        **{name: partial(host.liveness.counted.__getitem__, name) for name in ("deaths", "unwatched")},
    }
    return others[name]() if name in others else sources.counted[name]


class Player:
    """Plays words. ``accepted`` counts the accepted datagrams."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.counts = dict.fromkeys(COUNTERS, 0)
        self.accepted = 0
        self._changes: list[tuple[bytes, str]] = []

    def play(self, word: str, where: str) -> None:
        host = self.host
        prefix, dot, rest = word.partition(".")
        src = SRC
        if dot and (prefix.isalpha() or "/" in prefix):
            src, word = (b"" if "/" in prefix else b"host/program/") + prefix.encode(), rest
        verb, _, argument = word.partition(":")
        if word[0] in "@+":
            host.now = float(word[1:]) + (host.now if word[0] == "+" else 0)
            while word[0] == "+" and host.sources.sweep(host.now):
                pass
        elif word[0] == ">":
            host.until(float(word[1:]))
        elif verb in self._events:
            self._events[verb](self, src, argument)
        elif verb.startswith("beat-"):
            host.liveness.on_heartbeat(src, host.now - float(verb[5:]))
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

    def _receive(self, src: bytes, seq: int, expected: str, where: str, *, from_link: bool = False) -> None:
        verdict = self.host.receive(src, seq, from_link=from_link)
        assert (where, NAMES[verdict]) == (where, expected)
        self.accepted += verdict <= LAST_ACCEPTED

    def _hear(self, src: bytes, _: str, *, beat: bool) -> None:
        self.host.hear(src, beat=beat)
        self.accepted += 1

    def _check(self, src: bytes, name: str, expected: str, where: str) -> None:
        sources = self.host.sources
        hosts = {one.host.decode(): f"{one.received}/{one.lost}/{one.late}/{one.duplicate}" for one in sources.senders}
        found: object = hosts.get(name)
        wanted: object = expected
        if name == "latest":
            found = ",".join(one.src.decode().rpartition("/")[2] for one in sources.latest(9))
        elif not name:
            self._changes += self.host.changes()
            found = ",".join(state for whose, state in self._changes if whose == src)
            self._changes = [change for change in self._changes if change[0] != src]
        elif name not in hosts:
            found, wanted = counter(self.host, name, src), float(expected)
            self.counts[name] = int(wanted)
        assert (where, found) == (where, wanted)

    def _restart(self, _src: bytes, _: str) -> None:
        self._changes += self.host.changes()
        self.host = self.host.successor()
        self.counts, self.accepted = dict.fromkeys(COUNTERS, 0), 0

    def end(self, received: int) -> None:
        """Compare the counters; so much was received before the first word."""
        assert self.totals()[:2] == (received + self.accepted, self.host.sources.counted["lost"])
        for name in COUNTERS:
            assert (name, counter(self.host, name)) == (name, self.counts[name])

    def totals(self) -> tuple[int, int, int]:
        """Return what all sending hosts together have: received, lost, late."""
        return hosts_totals(self.host.sources)

    def _report(self, src: bytes, seqs: str, *, taken: bool = True) -> None:
        following, _, first = seqs.partition(":")
        assert self.host.sources.take_report(src, int(first or 1), int(following), self.host.now) == taken

    def _use(self, src: bytes, seqs: str) -> None:
        own = self.host.sources.claim(src)
        own.first, own.next = map(int, seqs.split(":"))

    def _look(self, src: bytes, seq: str, *, foreign: bool = False) -> None:
        sources = self.host.sources
        conflicts = sources.counted["conflicts"]
        sources.local.check_conflict(src, int(seq))
        assert sources.counted["conflicts"] - conflicts == foreign

    def _limit(self, _: bytes, limit: str) -> None:
        name, _equals, value = limit.partition("=")
        changed: dict[str, Any] = {name: int(value) if value.isdigit() else value}
        self.host.sources.limits.refresh(**changed)

    def _rule(self, _: bytes, value: str, *, name: str) -> None:
        liveness = self.host.liveness
        changed: dict[str, Any] = {name: int(value)}
        liveness.rules = liveness.rules._replace(**changed)

    _events: ClassVar[dict[str, Callable[[Player, bytes, str], object]]] = {
        "beat": partial(_hear, beat=True),
        "message": partial(_hear, beat=False),
        "look": lambda self, _src, _: self.host.sweep(),
        "sweep": lambda self, _src, _: self.host.sources.sweep(self.host.now),
        "claim": lambda self, src, _: self.host.sources.claim(src),
        "release": lambda self, src, expiry: self.host.sources.local.release(src, float(expiry)),
        "restart": _restart,
        "drop": lambda self, src, _: self.host.sources.drop(src),
        "forget": lambda self, src, _: self.host.sources.forget(self.host.source(src)),
        "report": _report,
        "refused": partial(_report, taken=False),
        "uses": _use,
        "used": _look,
        "foreign": partial(_look, foreign=True),
        "limits": _limit,
        "interval": partial(_rule, name="interval"),
        "dead_after": partial(_rule, name="dead_after"),
    }


def hosts_totals(sources: TrackerTable) -> tuple[int, int, int]:
    """Return what all sending hosts together have: received, lost, late."""
    hosts = list(sources.senders)
    return sum(host.received for host in hosts), sum(host.lost for host in hosts), sum(host.late for host in hosts)


def play(sources: TrackerTable, scenario: str, watch: HeartbeatRules = WATCH) -> None:
    """Play a scenario; at its end each of COUNTERS has the value given last, or 0, and the hosts have all of it."""
    player = Player(Host(sources, watch))
    before = begun = player.totals()
    for number, word in enumerate(scenario.split()):
        player.play(word, f"word {number}, {word}")
        if word == "restart":
            before = begun = player.totals()
        totals = player.totals()
        assert all(now >= earlier for now, earlier in zip(totals, before, strict=True)), word
        before = totals
    player.end(begun[0])
