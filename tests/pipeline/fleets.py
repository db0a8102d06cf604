"""Fleets for tests, and their tables as plain rows, so that they can be compared with the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bccnd.pipeline.driver.compute import Result, compute
from bccnd.pipeline.inputs.session_files import open_journal
from bccnd.pipeline.tables import schema
from examples.fleet_model import Fleet
from examples.simulation import SECOND, Simulation, write
from tests.pipeline.truth import Truth

#: tables that the truth has every column of, but for the ratio and the cause
EXACT = ("epochs", "messages", "link_loss", "delivery", "channel_loss", "missed")


def computed(spark: SparkSession, where: Path, **how: Any) -> Result:
    """The tables of a journal, or of some days of it."""
    return compute(spark, *open_journal(str(where)), **how)


def tables_of(*results: Result) -> dict[str, set[tuple[Any, ...]]]:
    """All tables as sets of plain rows: epochs are numbered 1, 2, ... for each source, sets of receivers are sets of
    hosts, times are microseconds. `epochs` is that of the last result."""
    rows = {name: [row.asDict() for result in results for row in _plain(name, result)] for name in EXACT}
    rows["epochs"] = [row.asDict() for row in _plain("epochs", results[-1])]
    hosts = {row.set_id: frozenset(row.hosts) for result in results for row in result.tables["receiver_sets"].collect()}
    sources: dict[str, list[int]] = {}
    for row in rows["epochs"]:
        sources.setdefault(row["src"], []).append(row["epoch"])
        # by the common clock, which these fleets' own clocks differ from by some seconds
        assert abs(row["epoch"] - row["first_ts"] / SECOND) < 10
    numbers = {(src, epoch): n for src, epochs in sources.items() for n, epoch in enumerate(sorted(epochs), 1)}
    by_table: dict[str, set[tuple[Any, ...]]] = {}
    for name, of_table in rows.items():
        for row in of_table:
            if "epoch" in row:
                row["epoch"] = numbers[row["src"], row["epoch"]]
            for column in ("set_id", "listening_set_id"):
                if column in row:
                    row[column] = hosts[row[column]]
            if name == "link_loss":
                due = row["expected"] - row["not_listening"]
                assert row.pop("loss_ratio") == ((row["lost_here"] + row["lost_everywhere"]) / due if due else None)
            row.pop("cause", None)
        by_table[name] = {tuple(row.values()) for row in of_table}
        assert len(by_table[name]) == len(of_table), f"{name} has rows twice"
    return by_table


def _plain(name: str, result: Result) -> list[Any]:
    times = [field.name for field in schema.TABLES[name] if field.dataType.typeName() == "timestamp"]
    frame: DataFrame = result.tables[name].withColumns({time: F.unix_micros(time) for time in times})
    return frame.withColumn("day", F.col("day").cast("string")).collect()


def differences(tables: dict[str, set[tuple[Any, ...]]], truth: Truth) -> dict[str, tuple[list[Any], list[Any]]]:
    """Per table what should not be there and what should be and is not; empty where all is as it should be."""
    differences = {}
    for name in EXACT:
        should = truth.table(name)
        if tables[name] != should:
            differences[name] = (
                sorted(tables[name] - should, key=repr)[:4],
                sorted(should - tables[name], key=repr)[:4],
            )
    return differences


def check(spark: SparkSession, fleet: Fleet, journal: Path) -> tuple[Simulation, Result]:
    """Compute a fleet's tables and compare all of them with the truth."""
    simulation = write(fleet, str(journal))
    result = computed(spark, journal)
    assert differences(tables_of(result), Truth(simulation)) == {}
    return simulation, result


def causes(result: Result) -> dict[tuple[str, int], str]:
    """The cause of each epoch, numbered from 1 for each source."""
    causes: dict[tuple[str, int], str] = {}
    numbers: dict[str, int] = {}
    for row in result.tables["epochs"].orderBy("src", "epoch").collect():
        numbers[row["src"]] = numbers.get(row["src"], 0) + 1
        causes[row["src"], numbers[row["src"]]] = row["cause"]
    return causes
