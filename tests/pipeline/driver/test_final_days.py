"""Days that are final: what is kept of them gives the tables of a build, and their late files are named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bccnd.pipeline.driver.build import build, once
from bccnd.pipeline.driver.embedded import EmbeddedRunner
from bccnd.pipeline.inputs import journal
from bccnd.pipeline.inputs.input_history import COLUMNS
from bccnd.pipeline.lake.delta import FILES, Change, Lake
from examples.fleet_model import Down, Fleet, Late, Loss, Recording, Restart, Source
from examples.simulation import write
from tests.pipeline.threedays import DAY, START, arrive, content, files

HERE = EmbeddedRunner()


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
    lake.begin([FILES])
    lake.commit({FILES: Change(COLUMNS, gone=set(days))})


@pytest.mark.slow
def test_days_that_become_final_leave_the_tables_of_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    week, tables, arriving = (tmp_path / name for name in ("week", "tables", "arriving"))
    write(fleet(), str(week), file_rows=2000)
    build(HERE, str(week), str(tables))
    expected = content(tables)
    for final_after in (3, 1):
        forget(tables, "2026-03-07")
        assert once(HERE, str(week), str(tables), final_after=final_after * DAY).days[-1] == "2026-03-07"
        assert content(tables) == expected, final_after

    # A day that comes is computed from what is kept of those before, without a look at their files.
    (arriving / "obs").mkdir(parents=True)
    verified: list[int] = []
    real = journal.read_journal

    def counting(*words: object, **more: object) -> object:
        found = real(*words, **more)  # type: ignore[arg-type]
        verified.append(len(found.files))
        return found

    monkeypatch.setattr(journal, "read_journal", counting)
    shutil.copytree(week / "sessions", arriving / "sessions")
    for day in range(1, 8):
        for path in files(week):
            if f"day=2026-03-{day:02}" in str(path):
                arrive(week, arriving, path)
        once(HERE, str(arriving), str(tmp_path / "daily"), final_after=2 * DAY)
    assert content(tmp_path / "daily") == expected
    assert max(verified) <= 4 * 3 * 2

    forget(tables, "2026-03-02")
    late = [str(path.relative_to(week)) for path in files(week) if "day=2026-03-02" in str(path)]
    for _ in range(2):
        outcome = once(HERE, str(week), str(tables), final_after=DAY)
        assert (outcome.days, outcome.late) == ([], late)
    assert "2026-03-02" in once(HERE, str(week), str(tables), days=["2026-03-02"]).days
    assert once(HERE, str(week), str(tables), final_after=DAY).late == []
    assert content(tables) == expected
