"""Days that are final: what is carried of them gives the tables of a build, and their late files are named."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bccnd.cli.journals.pipeline import _summary
from bccnd.cli.main import main
from bccnd.pipeline.driver import final_days
from bccnd.pipeline.driver.build import Outcome, build
from bccnd.pipeline.driver.final_days import CARRIED, first_open_day
from bccnd.pipeline.driver.incremental import once
from bccnd.pipeline.inputs.input_history import COLUMNS, FILES
from bccnd.pipeline.lake.delta import Change, Lake
from bccnd.pipeline.lake.table_store import opened
from bccnd.pipeline.records.task_records import date_of
from bccnd.pipeline.tables import schema
from examples.fleet_model import Down, Fleet, Late, Loss, Recording, Restart, Source
from examples.simulation import write
from tests.pipeline.threedays import DAY, START, content, files


def fleet() -> Fleet:
    """Three hosts for a week: restarts at midnight and after a day of silence, sources that end, begin, or are the only
    ones for days, a receiver that is down for two days."""
    sources = (
        Source("h1/steady/1", "h1", rate=1 / 900, copies=2),
        Source(
            "h1/old", "h1", rate=1 / 700, start=0, own=False, restarts=(Restart(1.6 * DAY), Restart(3 * DAY + 1, 2))
        ),
        Source("h2/short/2", "h2", rate=1 / 500, until=1.3 * DAY, heartbeat=600),
        Source("h2/pauses", "h2", rate=1 / 600, start=1, own=False, until=1.2 * DAY, restarts=(Restart(0.9 * DAY),)),
        Source("h2/later/4", "h2", rate=1 / 800, since=3.7 * DAY, heartbeat=300),
        Source("h3/jumps", "h3", rate=1 / 1000, start=10, own=False, restarts=(Restart(2.2 * DAY, 5000),)),
        Source("h3/rare/5", "h3", rate=1 / 100_000),
    )
    return Fleet(
        ("h1", "h2", "h3"),
        sources,
        duration=6.9 * DAY,
        start=START,
        losses=(Loss("h2", "h1/steady/1", every=7), Loss(None, "h1/old", every=31)),
        lates=(Late("h1", "h3/jumps", every=40, delay=0.5),),
        downs=(Down("h2", 2.4 * DAY, 4.6 * DAY),),
        offsets={"h3": 2.0},
        recordings={"h1": (Recording(0, 3.3 * DAY), Recording(3.35 * DAY), Recording(5.5 * DAY, fresh=True))},
    )


def forget(tables: Path, *days: str) -> None:
    """Have the tables of these days be made of no files: all files that there are came later."""
    lake = Lake(str(tables))
    lake.begin()
    lake.commit({FILES: Change(COLUMNS, [], days)})


def carried(tables: Path) -> dict[str, int]:
    """The day up to which sources are carried, and how many these are."""
    files = Lake(str(tables)).files(CARRIED)
    return {day: sum(file.rows for file in files if file.day == day) for day in {file.day for file in files}}


def test_days_that_become_final_leave_the_tables_of_a_build(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    week, tables = tmp_path / "week", tmp_path / "tables"
    write(fleet(), str(week), file_rows=2000)
    build(spark, str(week), str(tables))
    expected = content(tables)
    # what is carried is made of days, then of what was carried and further days, with all silences or those that matter
    for final_after, last, sources, few_days in ((3, "2026-03-01", 6, 60), (1, "2026-03-03", 6, 0)):
        monkeypatch.setattr(final_days, "_FEW_DAYS", few_days)
        forget(tables, "2026-03-07")
        outcome = once(spark, str(week), str(tables), final_after=final_after * DAY)
        assert outcome.days[-1] == "2026-03-07"
        assert carried(tables) == {last: sources}
        assert content(tables) == expected, final_after

    forget(tables, "2026-03-02")
    outcome = once(spark, str(week), str(tables), final_after=DAY)
    late = [str(path.relative_to(week)) for path in files(week) if "day=2026-03-02" in str(path)]
    assert (outcome.days, outcome.late) == ([], late)
    assert "2026-03-02" in once(spark, str(week), str(tables), days=["2026-03-02"]).days
    assert once(spark, str(week), str(tables), final_after=DAY).late == []
    assert content(tables) == expected


def test_what_is_carried_is_read_again_where_no_day_has_become_final(spark: SparkSession, tmp_path: Path) -> None:
    """The days before the first one that is open have no rows: the journal pauses for a week."""
    with opened(spark, str(tmp_path)) as kept:
        for name, columns, days in (
            (final_days.ALIGN, schema.ALIGN, ("2026-03-01", "2026-03-09")),
            (CARRIED, schema.CARRIED, ("2026-03-01",)),
        ):
            rows = spark.range(1).select(
                *[
                    F.lit("s" if field.name == "src" else None).cast(field.dataType).alias(field.name)
                    for field in columns
                ]
            )
            for day in days:
                kept.write(name, rows.withColumn("day", F.lit(day)))
        kept.commit(())
    with opened(spark, str(tmp_path)) as kept, ThreadPoolExecutor(1) as pool:
        carry = final_days.carry(kept, "2026-03-08", pool)
        assert carry is not None
        assert [row.src for row in carry.epochs.collect()] == ["s"]
        assert carry.heard.collect() == []
        assert CARRIED not in kept.rows


@pytest.mark.parametrize(
    ("days", "seconds", "now", "expected"),
    [
        (["2026-03-01", "2026-03-09"], 7 * DAY, "2026-03-09", "2026-03-02"),
        (["2026-03-01", "2026-03-09"], 1.5 * DAY, "2026-03-20", "2026-03-07"),
        # a clock that is ahead
        (["2026-03-01", "2027-03-09"], DAY, "2026-03-05", "2026-03-04"),
        (["2026-03-01", "2026-03-09"], 0.0, "2026-03-09", ""),
        ([], 7 * DAY, "2026-03-09", ""),
    ],
)
def test_days_are_final_so_long_before_the_newest(days: list[str], seconds: float, now: str, expected: str) -> None:
    assert first_open_day(days, seconds, date_of(now) * DAY + 3600) == expected


def test_the_summary_names_files_that_came_too_late_and_days_that_were_left(capsys: pytest.CaptureFixture[str]) -> None:
    paths = [f"obs/host=h1/day=2026-03-{day}/j-{number:012}.parquet" for day in ("01", "02") for number in range(1, 8)]
    _summary(Outcome([], {}, 1.0, ["2026-03-01", "2026-03-02"], late=paths), "t", as_json=False)
    printed = capsys.readouterr().out
    assert "from the journal: 2 days, 2026-03-01, 2026-03-02\n" in printed
    assert paths[0] in printed
    assert "(14)" in printed
    assert "build JOURNAL --out t --days 2026-03-01,2026-03-02\n" in printed


def test_a_day_that_is_none_is_refused() -> None:
    result = CliRunner().invoke(main, ["pipeline", "build", "j", "--out", "t", "--days", "2026-03-01,yesterday"])
    assert result.exit_code == 2
    assert "'yesterday' is not a day" in result.output
