"""The tables of simulated fleets as plain rows, so that they can be compared with the truth."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from bccnd.pipeline.driver.build import build
from bccnd.pipeline.driver.embedded import EmbeddedRunner
from bccnd.pipeline.schema import TABLES
from examples.fleet_model import Fleet
from examples.simulation import Simulation, write
from tests.pipeline.threedays import content
from tests.pipeline.truth import Truth

#: tables that the truth has every column of, but for the ratio and the cause
EXACT = ("epochs", "messages", "link_loss", "delivery", "channel_loss", "missed")
_START = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)

Rows = dict[str, list[dict[str, Any]]]


def tables_of(tables: Path | str) -> Rows:
    """All rows of all tables, times as microseconds since 1970."""
    return {
        name: [dict(zip((*TABLES[name].names, "day"), map(_plain, row), strict=True)) for row in rows]
        for name, rows in content(tables).items()
    }


def _plain(value: Any) -> Any:
    return (value - _START) // _MICROSECOND if isinstance(value, datetime.datetime) else value


def built(journal: Path, tables: Path) -> Rows:
    """The tables of a journal, made at once."""
    build(EmbeddedRunner(), str(journal), str(tables))
    return tables_of(tables)


def comparable(rows: Rows) -> dict[str, set[tuple[Any, ...]]]:
    """The tables that are `EXACT` as sets: epochs are numbered 1, 2, ... for each source, sets of receivers are sets of
    hosts."""
    hosts = {row["set_id"]: frozenset(row["hosts"]) for row in rows["receiver_sets"]}
    sources: dict[str, set[int]] = {}
    for row in rows["epochs"]:
        sources.setdefault(row["src"], set()).add(row["epoch"])
        # by the common clock, which these fleets' own clocks differ from by some seconds
        assert abs(row["epoch"] - row["first_ts"] / 1e6) < 10
    numbers = {(src, epoch): n for src, epochs in sources.items() for n, epoch in enumerate(sorted(epochs), 1)}
    by_table: dict[str, set[tuple[Any, ...]]] = {}
    for name in EXACT:
        plain_rows = []
        for original in rows[name]:
            row = dict(original)
            if "epoch" in row:
                row["epoch"] = numbers[row["src"], row["epoch"]]
            for column in ("set_id", "listening_set_id"):
                if column in row:
                    row[column] = hosts[row[column]]
            if name == "link_loss":
                due = row["expected"] - row["not_listening"]
                assert row.pop("loss_ratio") == ((row["lost_here"] + row["lost_everywhere"]) / due if due else None)
            row.pop("cause", None)
            plain_rows.append(tuple(row.values()))
        by_table[name] = set(plain_rows)
        assert len(by_table[name]) == len(plain_rows), f"{name} has rows twice"
    return by_table


def differences(rows: Rows, truth: Truth) -> dict[str, tuple[list[Any], list[Any]]]:
    """Per table what should not be there and what should be and is not; empty where all is as it should be."""
    tables = comparable(rows)
    return {
        name: (sorted(tables[name] - should, key=repr)[:4], sorted(should - tables[name], key=repr)[:4])
        for name in EXACT
        if tables[name] != (should := truth.table(name))
    }


def check(fleet: Fleet, folder: Path) -> tuple[Simulation, Rows]:
    """Make a fleet's tables in a folder and compare all of them with the truth."""
    simulation = write(fleet, str(folder / "journal"))
    rows = built(folder / "journal", folder / "tables")
    assert differences(rows, Truth(simulation)) == {}
    return simulation, rows


def causes(rows: Rows) -> dict[tuple[str, int], str]:
    """The cause of each epoch, numbered from 1 for each source."""
    found: dict[tuple[str, int], str] = {}
    numbers: dict[str, int] = {}
    for row in sorted(rows["epochs"], key=lambda row: (row["src"], row["epoch"])):
        numbers[row["src"]] = numbers.get(row["src"], 0) + 1
        found[row["src"], numbers[row["src"]]] = row["cause"]
    return found
