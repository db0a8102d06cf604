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


@pytest.mark.parametrize(
    ("journals", "expected"),
    [
        pytest.param(
            # 17.5 s are explained; a message of another kind ends a silence as well
            [Journal("h1", beats("m/p/1", (0, 100), (117, 200)), [(0, 201)])],
            [],
            id="explained by missed heartbeats",
        ),
        pytest.param(
            [
                Journal(
                    "h1",
                    in_time(beats("m/p/1", (0, 100), (118, 198), (240, 300)), [row(230.25, 230_250)]),
                    [(0, 301)],
                )
            ],
            [
                (host, "m/p/1", *gap, "gap", "heartbeat")
                for host in (None, "h1")
                for gap in ((100.0, 118.0), (198.0, 230.25))
            ],
            id="longer than heartbeats explain",
        ),
        pytest.param(
            [Journal("h1", in_time(BROKEN, [row(130.0, verdict="integrity_failed")]), [(0, 301)])],
            [(None, *GAP), ("h1", *GAP)],
            id="refused datagrams are no signs of life",
        ),
        pytest.param(
            [
                Journal(
                    "h1",
                    in_time(BROKEN, [row(s, verdict="duplicate") for s in (110.0, 125.0, 140.0, 150.0)]),
                    [(0, 301)],
                )
            ],
            [],
            id="copies are",
        ),
        pytest.param(
            [Journal("h1", in_time(QUICK, SLOW, RARE), [(0, 450)])],
            [
                (host, "m/quick", *gap, kind, "any")
                for host in (None, "h1")
                for gap, kind in (((29.0, 91.0), "gap"), ((119.0, None), "open"))
            ],
            id="without heartbeats a minute or twenty distances",
        ),
        pytest.param(
            [Journal("h1", BROKEN, [(0, 101), (159, 300)]), Journal("h2", WHOLE)],
            [("h1", *DOWN)],
            id="not recording",
        ),
        pytest.param([Journal("h1", BROKEN, [(0, 101), (159, 300)])], [("h1", *DOWN)], id="no host recording"),
        pytest.param(
            [Journal("h1", BROKEN, [(0, 101), (140, 300)]), Journal("h2", WHOLE)],
            [("h1", *GAP)],
            id="recording again for longer than explained",
        ),
        pytest.param(
            [Journal("h1", BROKEN[:21], [], "a"), Journal("h1", BROKEN[21:], [], "b")],
            [("h1", *DOWN)],
            id="journals without sessions",
        ),
        pytest.param(
            [Journal("h1", in_time(beats("m/p/1", (0, 100)), beats("n/p/1", (0, 200))), [(0, 201)])],
            [(host, "m/p/1", 100.0, None, "open", "heartbeat") for host in (None, "h1")],
            id="not ended yet",
        ),
        pytest.param([Journal("h1", beats("m/p/1", (0, 100)), [(0, 110)])], [], id="the receiver ended, too"),
        pytest.param(
            [Journal("h1", in_time(TWO, ELSEWHERE), [(0, 301)])],
            [
                (None, *DOWN),
                (None, "m/q/2", 102.0, 162.0, "host_down", "heartbeat"),
                ("h1", *GAP),
                ("h1", "m/q/2", 102.0, 162.0, "gap", "heartbeat"),
            ],
            id="a machine that is off takes its sources with it",
        ),
        pytest.param(
            [Journal("h1", in_time(TWO, ELSEWHERE, beats("m/r/3", (1, 301))), [(0, 301)])],
            [(host, *gap) for host in (None, "h1") for gap in (GAP, ("m/q/2", 102.0, 162.0, "gap", "heartbeat"))],
            id="one source that kept sending shows that it was up",
        ),
        pytest.param(
            [Journal("h1", [row(s, src="?") for s in (*range(20), *range(200, 220))], [(0, 300)])],
            [],
            id="without a name there is none",
        ),
    ],
)
def test_silences(journals: list[Journal], expected: list[tuple[Any, ...]], tmp_path: Path) -> None:
    assert silences(tables(tmp_path, *journals)) == expected


def test_a_silence_belongs_to_the_day_on_which_it_began(tmp_path: Path) -> None:
    evening, morning = beats("m/p/1", (MIDNIGHT - 100, MIDNIGHT - 10)), beats("m/p/1", (MIDNIGHT + 30, MIDNIGHT + 90))
    gap = ("m/p/1", MIDNIGHT - 10, MIDNIGHT + 30, "gap", "heartbeat")
    rows = tables(tmp_path, Journal("h1", [*evening, *morning], [(0, MIDNIGHT + 100)]))
    assert silences(rows) == [(None, *gap), ("h1", *gap)]
    assert {one["day"] for one in rows["liveness"]} == {"2026-03-01"}
    # In two runs: it is open first, and ended by the next day.
    journal, made = tmp_path / "by_days", tmp_path / "made"
    write(journal, Journal("h1", evening, [(0, MIDNIGHT + 25)]))
    once(EmbeddedRunner(), str(journal), str(made))
    assert {kind for *_, kind, _ in silences(tables_of(made))} == {"open"}
    write(journal, Journal("h1", [*evening, *morning], [(0, MIDNIGHT + 100)]))
    once(EmbeddedRunner(), str(journal), str(made))
    assert tables_of(made)["liveness"] == rows["liveness"]
