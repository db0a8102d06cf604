"""Events of one source as a line of words, applied to a tracker table.

    5 8 @1 6:stale ~6:duplicate @3.25 sweep lost=1

- ``8``: a datagram with this seq is accepted; ``6:stale``: it gets this verdict; ``~6``: it comes from a link
- ``@3.25``: the time from now on, in seconds; initially 0
- ``sweep``, ``forget``, ``claim``, ``release:30``: the method of `TrackerTable`, with the expiry of a release
- ``lost=1``: this counter of `TrackerTable`; ``epoch=2``: the source's epoch; ``tracked=0``: the number of trackers
"""

from __future__ import annotations

from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.wire.verdicts import NAMES

SRC = b"host/program/1"
COUNTERS = ("missing", "lost", "restarts", "jumps")


def receive(sources: TrackerTable, src: bytes, seq: int, now: float, from_link: bool = False) -> int:
    """Return the verdict as `Ingress` does for a well-formed datagram."""
    return sources.judge(src, seq, now, from_link)


def counter(sources: TrackerTable, name: str) -> int:
    if name == "epoch":
        return sources.epoch(SRC)
    if name == "tracked":
        return len(sources)
    return int(sources.missing) if name == "missing" else sources.counted[name]


def play(sources: TrackerTable, scenario: str) -> None:
    """Play a scenario; at its end each of COUNTERS has the value given last, or 0."""
    now = 0.0
    counts = dict.fromkeys(COUNTERS, 0)
    for number, word in enumerate(scenario.split()):
        where = f"word {number}, {word}"
        verb, _, argument = word.partition(":")
        if word.startswith("@"):
            now = float(word[1:])
        elif verb == "sweep":
            sources.sweep(now)
        elif verb == "claim":
            sources.claim(SRC)
        elif verb == "release":
            sources.local.release(SRC, float(argument))
        elif verb == "forget":
            source = sources.get(SRC)
            assert source is not None, where
            sources.forget(source)
        elif "=" in word:
            name, _, count = word.partition("=")
            assert (where, counter(sources, name)) == (where, int(count))
            counts[name] = int(count)
        elif verb.startswith("~"):
            verdict = receive(sources, SRC, int(verb[1:]), now, from_link=True)
            assert (where, NAMES[verdict]) == (where, argument or "accepted")
        else:
            assert (where, NAMES[receive(sources, SRC, int(verb), now)]) == (where, argument or "accepted")
    for name in COUNTERS:
        assert (name, counter(sources, name)) == (name, counts[name])
