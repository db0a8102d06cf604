"""Decides which lines of a report go into which of its datagrams.

Invariant: at most `MAX_DATAGRAMS` a report, none larger than the room it has. What has changed goes first; the rest
follows in turn, so that what a lost datagram carried is told again, and nothing waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from bccnd.fleet.report_format import HeardHost, SentRun, head_line, heard_line, keys_line, sent_line

#: datagrams of one report
MAX_DATAGRAMS: Final = 8
#: reports in which news goes first: two of them may be lost
TOLD: Final = 3
#: by how much a line counts as older than one that says nothing new: one with news, and one whose numbers have changed
_NEWS: Final = 32
_CHANGED: Final = 4

_Key = tuple[str, str]
_Numbers = tuple[int, ...]


class _Told(NamedTuple):
    """What was last written about a source or host: in which report, and in how many since the ``news`` changed."""

    numbers: _Numbers = ()
    news: _Numbers = ()
    report: int = 0
    times: int = 0


class _Line(NamedTuple):
    """A line that may be written; the one with the highest ``urgency`` goes first."""

    urgency: int
    key: _Key
    before: _Told
    after: _Told
    text: bytes


class ReportPlanner:
    """Writes one report after the other, and remembers what each has told."""

    def __init__(self) -> None:
        self._told: dict[_Key, _Told] = {}
        self._report = 0

    def write(
        self,
        version: str,
        interval_ms: int,
        keys: tuple[str, tuple[str, ...]] | None,
        sent: Iterable[SentRun],
        heard: Iterable[HeardHost],
        room: int,
    ) -> list[bytes]:
        """Return the payloads of a report, of at most ``room`` bytes each."""
        self._report += 1
        lines = sorted(self._lines(sent, heard), key=lambda line: -line.urgency)
        self._told = {line.key: line.before for line in lines}
        # One digit each for the number of the part and that of parts.
        room -= len(head_line(version, interval_ms, MAX_DATAGRAMS, MAX_DATAGRAMS))
        bodies = [keys_line(*keys) if keys is not None else b""]
        for line in lines:
            if len(bodies[-1]) + len(line.text) > room:
                if len(bodies) == MAX_DATAGRAMS:
                    break
                bodies.append(b"")
            bodies[-1] += line.text
            self._told[line.key] = line.after
        return [head_line(version, interval_ms, part, len(bodies)) + body for part, body in enumerate(bodies, 1)]

    def _lines(self, sent: Iterable[SentRun], heard: Iterable[HeardHost]) -> Iterator[_Line]:
        for run in sent:
            yield self._line(("sent", run.src), run[1:], run[1:], sent_line(run))
        for one in heard:
            # A loss is news; that a host goes on to send is none.
            news = (one.since_ms, one.lost, one.late)
            yield self._line(("heard", one.host), one[1:], news, heard_line(one))

    def _line(self, key: _Key, numbers: _Numbers, news: _Numbers, text: bytes) -> _Line:
        before = self._told.get(key, _Told())
        times = before.times if before.news == news else 0
        weight = _NEWS if times < TOLD else _CHANGED if before.numbers != numbers else 1
        after = _Told(numbers, news, self._report, times + 1)
        return _Line(weight * (self._report - before.report), key, before, after, text)
