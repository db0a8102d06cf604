"""Silences: exact, explained by the rhythm of a source, the receiver's recording and the machine."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline.records import task_records
from bccnd.pipeline.tables import liveness as module
from bccnd.pipeline.tables.liveness import Silence, fell_together
from bccnd.pipeline.tables.schema import conform
from tests.pipeline.frames import DAY, SECOND, at, records, rows_of

COLUMNS = ("host", "src", "from_ts", "to_ts", "kind", "basis")
MIDNIGHT = 86_400.0


def kept(given: list[dict[str, Any]]) -> list[module.Kept]:
    """What is kept of rows."""
    table = records(*given)
    rows = list(module.condensed(table))
    spans: dict[tuple[str, str, str], tuple[int, int]] = {}
    for row in task_records.fields_of(table, "receiver").to_pylist():
        key = row["day"], row["host"], row["journal_id"]
        low, high = spans.get(key, (row["from_us"], row["to_us"]))
        spans[key] = min(low, row["from_us"]), max(high, row["to_us"])
    return rows + [
        module.Kept(day, "journal", host, name, *span, None, "") for (day, host, name), span in spans.items()
    ]


def silences(given: list[dict[str, Any]], *times: tuple[str, str, float, float]) -> list[Any]:
    """The table, without Spark."""
    return table_of(kept(given), *times)


def table_of(rows: list[module.Kept], *times: tuple[str, str, float, float]) -> list[Any]:
    spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for host, name, begin, end in times:
        spans.setdefault((host, name), []).append((at(begin), at(end)))
    journals: dict[tuple[str, str], tuple[int, int]] = {}
    machines: dict[str, list[module.Kept]] = {}
    for row in rows:
        if row.what == "journal":
            low, high = journals.get((str(row.host), row.src), (row.from_us, row.to_us))
            journals[str(row.host), row.src] = min(low, row.from_us), max(high, row.to_us)
        else:
            machines.setdefault(row.src.partition("/")[0], []).append(row)
    recorded = module.Recorded(spans, journals)
    table = [row for of_one in machines.values() for row in module.silences(of_one, recorded)]
    found_rows = [
        (row["host"], row["src"], since(row["from_ts"]), since(row["to_ts"]), row["kind"], row["basis"])
        for row in table
    ]
    return sorted(found_rows, key=lambda row: [(value is not None, value) for value in row])


def since(us: int | None) -> float | None:
    return None if us is None else (us - DAY) / SECOND


def beats(src: str, *spans: tuple[float, float], host: str = "h1", every: float = 5.0) -> list[dict[str, Any]]:
    """Heartbeats of a source as a receiver got them, from and up to so many seconds."""
    rows = []
    for start, end in spans:
        for number in range(int((end - start) / every) + 1):
            second = start + number * every
            rows.append({"host": host, "src": src, "s": second, "seq_key": int(second * 1000)})
            rows[-1]["chan"] = f"heartbeat/{src}"
    return rows


def test_a_silence_longer_than_missed_heartbeats_explain() -> None:
    # 17.5 s are explained; a message of another kind ends a silence as well.
    given = beats("m/p/1", (0, 100), (117, 200))
    assert silences(given, ("h1", "j1", 0, 201)) == []
    given = [*beats("m/p/1", (0, 100), (118, 198)), {"src": "m/p/1", "s": 230.25}, *beats("m/p/1", (240, 300))]
    gaps = [(100.0, 118.0), (198.0, 230.25)]
    assert silences(given, ("h1", "j1", 0, 301)) == [
        (host, "m/p/1", *gap, "gap", "heartbeat") for host in (None, "h1") for gap in gaps
    ]


def test_refused_datagrams_are_no_signs_of_life_but_copies_are() -> None:
    given = beats("m/p/1", (0, 100), (150, 200))
    given += [{"src": "m/p/1", "s": 110.0, "verdict": "integrity_failed"}]
    given += [{"src": "m/p/1", "s": 160.0, "verdict": "duplicate", "seq_key": 160_000}]
    assert silences(given, ("h1", "j1", 0, 201))[1:] == [("h1", "m/p/1", 100.0, 150.0, "gap", "heartbeat")]
    given += [{"src": "m/p/1", "s": second, "verdict": "duplicate"} for second in (110.0, 125.0, 140.0)]
    assert silences(given, ("h1", "j1", 0, 201)) == []


def test_without_heartbeats_a_minute_or_twenty_distances() -> None:
    quick = [{"src": "m/quick", "s": second} for second in (*range(30), *range(91, 120))]
    slow = [{"src": "m/slow", "s": 10.0 * number} for number in (*range(10), 40)]
    rare = [{"src": "m/rare", "s": 0.0}, {"src": "m/rare", "s": 200.0}]
    assert silences([*quick, *slow, *rare], ("h1", "j1", 0, 450)) == [
        (host, "m/quick", *gap, kind, "any")
        for host in (None, "h1")
        for gap, kind in (((29.0, 91.0), "gap"), ((119.0, None), "open"))
    ]


def test_nothing_is_known_of_times_without_recording() -> None:
    first = beats("m/p/1", (0, 100), (160, 300))
    given = [*first, *beats("m/p/1", (0, 300), host="h2")]
    times = [("h1", "j1", 0.0, 101.0), ("h1", "j1", 159.0, 300.0), ("h2", "j2", 0.0, 300.0)]
    down = [("h1", "m/p/1", 100.0, 160.0, "host_down", "heartbeat")]
    assert silences(given, *times) == down
    # Alone, too: a source is not silent while no receiver is recording.
    assert silences(first, *times[:2]) == down
    # It was back for longer than can be explained, and received nothing.
    times[1] = ("h1", "j1", 140.0, 300.0)
    assert silences(given, *times) == [("h1", "m/p/1", 100.0, 160.0, "gap", "heartbeat")]


def test_a_journal_without_sessions_counts_from_its_first_row_to_its_last() -> None:
    given = [{**row, "journal_id": "a" if row["s"] <= 100 else "b"} for row in beats("m/p/1", (0, 100), (160, 300))]
    assert silences(given) == [("h1", "m/p/1", 100.0, 160.0, "host_down", "heartbeat")]
    assert [row[4] for row in silences([{**row, "journal_id": "a"} for row in given])] == ["gap", "gap"]


def test_what_has_not_ended_when_the_data_end_is_open() -> None:
    given = [*beats("m/p/1", (0, 100)), *beats("n/p/1", (0, 200))]
    assert silences(given, ("h1", "j1", 0, 201)) == [
        (host, "m/p/1", 100.0, None, "open", "heartbeat") for host in (None, "h1")
    ]
    # The receiver has stopped as well: for it, the data end there.
    assert silences(beats("m/p/1", (0, 100)), ("h1", "j1", 0, 110)) == []


def test_a_machine_that_is_off_takes_its_sources_with_it() -> None:
    two = [*beats("m/p/1", (0, 100), (160, 300)), *beats("m/q/2", (2, 102), (162, 302))]
    elsewhere = beats("n/p/1", (0, 300))
    rows = silences([*two, *elsewhere], ("h1", "j1", 0, 301))
    assert [row for row in rows if row[0] is None] == [
        (None, "m/p/1", 100.0, 160.0, "host_down", "heartbeat"),
        (None, "m/q/2", 102.0, 162.0, "host_down", "heartbeat"),
    ]
    assert {row[4] for row in rows if row[0] is not None} == {"gap"}
    # One that kept sending shows that the machine was up.
    rows = silences([*two, *elsewhere, *beats("m/r/3", (1, 301))], ("h1", "j1", 0, 301))
    assert [row[4] for row in rows] == ["gap"] * 4


def test_a_silence_over_midnight_belongs_to_the_day_on_which_it_began(spark: SparkSession) -> None:
    given = beats("m/p/1", (MIDNIGHT - 100, MIDNIGHT - 10), (MIDNIGHT + 30, MIDNIGHT + 90))
    times = ("h1", "j1", 0.0, MIDNIGHT + 100)
    whole = kept(given)
    gap = ("m/p/1", MIDNIGHT - 10, MIDNIGHT + 30, "gap", "heartbeat")
    assert table_of(whole, times) == [(None, *gap), ("h1", *gap)]
    # What is kept of days one by one is what is kept of all at once.
    halves = [kept([row for row in given if (row["s"] < MIDNIGHT) == early]) for early in (False, True)]
    assert sorted(halves[0] + halves[1], key=str) == sorted(whole, key=str)
    # And by Spark, from what the scan emits.
    frame = task_records.frame_of(spark, records(*given))
    table = module.liveness(
        module.kept(frame, task_records.of_kind(frame, "receiver"), 2), [("h1", "j1", at(0), at(times[3]))]
    )
    day = "2026-03-01"
    assert rows_of(conform("liveness", table), *COLUMNS, "day") == [(None, *gap, day), ("h1", *gap, day)]


@pytest.mark.parametrize("verdict", ["host_down", "gap", None])
def test_a_silence_that_began_on_a_day_that_is_carried_counts_as_it_did(verdict: str | None) -> None:
    """The others that fell silent then are not known any more."""
    until, beat, rows = at(100), (20 * SECOND, "heartbeat"), []
    for host in (None, "h1"):
        shown = verdict if host is None else None
        rows.append(module.Kept("2026-03-01", "heard", host, "h2/p/1", at(0), until, *beat, shown))
        rows.append(module.Kept("2026-03-02", "heard", host, "h2/p/1", at(200), at(300), *beat))
    rows.append(module.Kept("2026-03-01", "born", None, "h2/p/1", at(0), at(0), *beat))
    expected = "host_down" if verdict == "host_down" else "gap"
    assert table_of(rows, ("h1", "j1", 0, 300)) == [
        (None, "h2/p/1", 100.0, 200.0, expected, "heartbeat"),
        ("h1", "h2/p/1", 100.0, 200.0, "gap", "heartbeat"),
    ]


def test_without_a_name_there_is_no_liveness() -> None:
    given = [{"src": "?", "s": float(second)} for second in (*range(20), *range(200, 220))]
    assert silences([*given, {"src": None, "s": 100.0, "verdict": "bad_body"}], ("h1", "j1", 0, 300)) == []


BORN = {"a": (0, 10), "b": (0, 10), "late": (500, 10), "slow": (0, 1000)}


@pytest.mark.parametrize(
    ("silences", "expected"),
    [
        ([], []),
        # alone: b kept sending
        ([Silence("a", 100, 200, 10)], [False]),
        ([Silence("a", 100, 200, 10), Silence("b", 105, 210, 10)], [True, True]),
        ([Silence("a", 100, 200, 10), Silence("b", 111, 210, 10)], [False, False]),
        # b was dead already: no source fell silent with a
        ([Silence("a", 100, 200, 10), Silence("b", 20, 210, 10)], [False, False]),
        # and late was not born yet for the first, but kept sending during the second
        ([Silence("a", 600, 700, 10), Silence("b", 600, 700, 10)], [False, False]),
        ([Silence("a", 600, 700, 10), Silence("b", 600, 700, 10), Silence("late", 600, 900, 10)], [True] * 3),
    ],
)
def test_which_sources_fell_silent_together(silences: list[Silence], expected: list[bool]) -> None:
    assert fell_together(BORN, silences) == expected
