"""Silences: exact, explained by the rhythm of a source, the receiver's recording and the machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bccnd.core.formats.tap_record import Observation
from bccnd.pipeline.driver.build import once
from bccnd.pipeline.driver.embedded import EmbeddedRunner
from tests.pipeline.fleets import Rows, tables_of
from tests.pipeline.hand_made import Journal, row, since, tables, write

MIDNIGHT = 86_400.0


def silences(rows: Rows) -> list[tuple[Any, ...]]:
    """The table, times as seconds of the day."""
    found = [
        (row["host"], row["src"], since(row["from_ts"]), since(row["to_ts"]), row["kind"], row["basis"])
        for row in rows["liveness"]
    ]
    return sorted(found, key=lambda row: [(value is not None, value) for value in row])


def beats(src: str, *spans: tuple[float, float], every: float = 5.0) -> list[Observation]:
    """Heartbeats of a source as a receiver got them, from and up to so many seconds."""
    return [
        row(start + number * every, int((start + number * every) * 1000), src=src, chan=f"heartbeat/{src}")
        for start, end in spans
        for number in range(int((end - start) / every) + 1)
    ]


def in_time(*parts: Sequence[Observation]) -> list[Observation]:
    return sorted((one for part in parts for one in part), key=lambda one: one.ts)


BROKEN, WHOLE = beats("m/p/1", (0, 100), (160, 300)), beats("m/p/1", (0, 300))
QUICK = [row(s, int(s) + 1, src="m/quick") for s in (*range(30), *range(91, 120))]
SLOW = [row(10.0 * number, number + 1, src="m/slow") for number in (*range(10), 40)]
RARE = [row(0.0, 1, src="m/rare"), row(200.0, 2, src="m/rare")]
TWO = [*beats("m/p/1", (0, 100), (160, 300)), *beats("m/q/2", (2, 102), (162, 302))]
ELSEWHERE = beats("n/p/1", (0, 300))
GAP = ("m/p/1", 100.0, 160.0, "gap", "heartbeat")
DOWN = ("m/p/1", 100.0, 160.0, "host_down", "heartbeat")
OTHER = ("m/q/2", 102.0, 162.0)


def heard(*parts: Sequence[Observation], until: float = 301) -> list[Journal]:
    """What one receiver got while it recorded."""
    return [Journal("h1", in_time(*parts), [(0, until)])]


def both(*silences: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """These silences for all receivers, and for the one that there is."""
    return [(host, *silence) for host in (None, "h1") for silence in silences]


CASES: dict[str, tuple[list[Journal], list[tuple[Any, ...]]]] = {
    # 17.5 s are; a message of another kind ends a silence as well
    "explained by missed heartbeats": (heard(beats("m/p/1", (0, 100), (117, 200)), until=201), []),
    "longer than heartbeats explain": (
        heard(beats("m/p/1", (0, 100), (118, 198), (240, 300)), [row(230.25, 230_250)]),
        both(*(("m/p/1", *gap, "gap", "heartbeat") for gap in ((100.0, 118.0), (198.0, 230.25)))),
    ),
    "refused datagrams are no signs of life": (heard(BROKEN, [row(130.0, verdict="integrity_failed")]), both(GAP)),
    "copies are": (heard(BROKEN, [row(s, verdict="duplicate") for s in (110.0, 125.0, 140.0, 150.0)]), []),
    "without heartbeats a minute or twenty distances": (
        heard(QUICK, SLOW, RARE, until=450),
        both(("m/quick", 29.0, 91.0, "gap", "any"), ("m/quick", 119.0, None, "open", "any")),
    ),
    "not recording": ([Journal("h1", BROKEN, [(0, 101), (159, 300)]), Journal("h2", WHOLE)], [("h1", *DOWN)]),
    "no host recording": ([Journal("h1", BROKEN, [(0, 101), (159, 300)])], [("h1", *DOWN)]),
    "recording again for longer than explained": (
        [Journal("h1", BROKEN, [(0, 101), (140, 300)]), Journal("h2", WHOLE)],
        [("h1", *GAP)],
    ),
    "journals without sessions": (
        [Journal("h1", BROKEN[:21], [], "a"), Journal("h1", BROKEN[21:], [], "b")],
        [("h1", *DOWN)],
    ),
    "not ended yet": (
        heard(beats("m/p/1", (0, 100)), beats("n/p/1", (0, 200)), until=201),
        both(("m/p/1", 100.0, None, "open", "heartbeat")),
    ),
    "the receiver ended, too": (heard(beats("m/p/1", (0, 100)), until=110), []),
    "a machine that is off takes its sources with it": (
        heard(TWO, ELSEWHERE),
        [(None, *DOWN), (None, *OTHER, "host_down", "heartbeat"), ("h1", *GAP), ("h1", *OTHER, "gap", "heartbeat")],
    ),
    "one source that kept sending shows that it was up": (
        heard(TWO, ELSEWHERE, beats("m/r/3", (1, 301))),
        both(GAP, (*OTHER, "gap", "heartbeat")),
    ),
    "without a name there is none": (heard([row(s, src="?") for s in (*range(20), *range(200, 220))]), []),
}


@pytest.mark.parametrize(("journals", "expected"), CASES.values(), ids=CASES)
def test_silences(journals: list[Journal], expected: list[tuple[Any, ...]], tmp_path: Path) -> None:
    assert silences(tables(tmp_path, *journals)) == expected


def test_a_silence_belongs_to_the_day_on_which_it_began(tmp_path: Path) -> None:
    evening, morning = beats("m/p/1", (MIDNIGHT - 100, MIDNIGHT - 10)), beats("m/p/1", (MIDNIGHT + 30, MIDNIGHT + 90))
    gap = ("m/p/1", MIDNIGHT - 10, MIDNIGHT + 30, "gap", "heartbeat")
    journal, made = tmp_path / "journal", tmp_path / "tables"
    write(journal, Journal("h1", evening, [(0, MIDNIGHT + 25)]))
    once(EmbeddedRunner(), str(journal), str(made))
    assert {kind for *_, kind, _ in silences(tables_of(made))} == {"open"}
    # It is ended by the next day.
    write(journal, Journal("h1", [*evening, *morning], [(0, MIDNIGHT + 100)]))
    once(EmbeddedRunner(), str(journal), str(made))
    rows = tables_of(made)
    assert silences(rows) == [(None, *gap), ("h1", *gap)]
    assert {one["day"] for one in rows["liveness"]} == {"2026-03-01"}
