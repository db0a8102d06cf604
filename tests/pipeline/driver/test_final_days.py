"""Days that are final: what is kept of them gives the tables of a build, and their late files are named."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bccnd.pipeline.driver.build import build, once
from bccnd.pipeline.driver.embedded import EmbeddedRunner
from bccnd.pipeline.inputs import journal
from bccnd.pipeline.inputs.input_history import COLUMNS
from bccnd.pipeline.lake.delta import FILES, Change, Lake
from examples.fleet_model import Down, Restart, Source
from examples.simulation import write
from tests.pipeline import threedays
from tests.pipeline.threedays import DAY, arrive, content, files

HERE = EmbeddedRunner()
#: after those of the small journal: a restart at midnight and one after days without messages, a source that comes late
LATER = (
    Source("h2/old", "h2", 1 / 700, start=0, own=False, until=1.6 * DAY, restarts=(Restart(0.5 * DAY + 1, 2),)),
    Source("h1/rare/5", "h1", 1 / 100_000, restarts=(Restart(4.2 * DAY),)),
    Source("h2/later/4", "h2", 1 / 800, since=4.2 * DAY, heartbeat=300),
)


def forget(tables: Path, day: str) -> None:
    """Have the tables of a day be made of no files: all files that there are came later."""
    lake = Lake(str(tables))
    lake.begin([FILES])
    lake.commit({FILES: Change(COLUMNS, gone={day})})


@pytest.mark.slow
def test_days_that_become_final_leave_the_tables_of_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day that comes is computed from what is kept of those before, without a look at their files."""
    whole, arriving, tables = (tmp_path / name for name in ("whole", "arriving", "tables"))
    small = threedays.fleet()
    downs = (*small.downs, Down("h2", 2.4 * DAY, 4.1 * DAY))
    write(replace(small, sources=(*small.sources, *LATER), downs=downs, duration=5.4 * DAY), str(whole))
    build(HERE, str(whole), str(tmp_path / "built"))
    expected = content(tmp_path / "built")
    looked_at: list[list[str]] = []
    real = journal.read_journal

    def noting(*words: object, **more: object) -> object:
        found = real(*words, **more)  # type: ignore[arg-type]
        looked_at.append([file.day for file in found.files])
        return found

    monkeypatch.setattr(journal, "read_journal", noting)
    shutil.copytree(whole / "sessions", arriving / "sessions")
    for day in range(1, 7):
        for path in files(whole):
            if f"day=2026-03-0{day}" in str(path):
                arrive(whole, arriving, path)
        once(HERE, str(arriving), str(tables), final_after=DAY)
    assert content(tables) == expected
    assert [min(days)[-1:] for days in looked_at] == list("111123")

    forget(tables, "2026-03-02")
    late = [str(path.relative_to(whole)) for path in files(whole) if "day=2026-03-02" in str(path)]
    for _ in range(2):
        outcome = once(HERE, str(arriving), str(tables), final_after=DAY)
        assert (outcome.days, outcome.late) == ([], late)
    assert "2026-03-02" in once(HERE, str(arriving), str(tables), days=["2026-03-02"]).days
    assert once(HERE, str(arriving), str(tables), final_after=DAY).late == []
    assert content(tables) == expected
