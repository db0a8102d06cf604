"""A small journal over three days with something of everything, and tables compared row by row."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

from bccnd.pipeline import schema
from bccnd.pipeline.lake.delta import Lake
from examples.fleet_model import Down, Fleet, Forged, Late, Loss, Recording, Restart, Source
from examples.simulation import write

#: 2026-03-01, at midnight
START = int(datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC).timestamp())
DAY = 86_400.0
#: settings of Spark for little data
SMALL = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
HOSTS = ("h1", "h2", "h3")


def fleet() -> Fleet:
    """Three hosts from the afternoon of one day to the morning of the third."""
    sources = (
        Source("h1/p/1", "h1", rate=1 / 300, start=1000, copies=2, restarts=(Restart(1.2 * DAY),)),
        Source("h2/p/2", "h2", rate=1 / 400, channels=("a/b", "c")),
        Source("h2/q/3", "h2", rate=1 / 600),
        # close to midnight there is more
        Source("h3/p/4", "h3", rate=0.2, since=0.49 * DAY, until=0.51 * DAY, heartbeat=10),
    )
    return Fleet(
        HOSTS,
        sources,
        duration=1.9 * DAY,
        start=START + int(DAY / 2),
        losses=(Loss("h2", "h1/p/1", every=7), Loss(None, "h2/p/2", every=31)),
        lates=(Late("h1", "h2/p/2", every=40, delay=0.5),),
        downs=(Down("h2", 0.8 * DAY, 0.9 * DAY),),
        forged=(Forged(0.495 * DAY, 1000.0, 20, "h1/p/1"),),
        offsets={"h3": 2.0},
        recordings={"h1": (Recording(0, 0.3 * DAY), Recording(0.35 * DAY), Recording(1.5 * DAY, fresh=True))},
    )


def written(folder: Path) -> Path:
    """The journal of the fleet."""
    write(fleet(), str(folder), file_rows=400)
    return folder


def files(journal: Path) -> list[Path]:
    """The files with records, in the order of their days."""
    return sorted((journal / "obs").rglob("*.parquet"), key=lambda path: (path.parent.name, str(path)))


def arrive(journal: Path, to: Path, path: Path) -> None:
    """A file reaches another place, whole."""
    place = to / path.relative_to(journal)
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.parent / f".{place.name}"
    shutil.copyfile(path, unfinished)
    unfinished.rename(place)


def content(tables: Path | str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, in order; the day comes last."""
    lake = Lake(str(tables))
    by_table = {}
    for name, columns in schema.TABLES.items():
        rows = lake.load(name, columns.append(pa.field("day", pa.string()))).to_pylist()
        by_table[name] = sorted((tuple(row.values()) for row in rows), key=repr)
    return by_table
