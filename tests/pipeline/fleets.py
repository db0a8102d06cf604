"""Fleets for tests, and their tables as plain rows, so that they can be compared with the truth."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bccnd.pipeline import schema
from bccnd.pipeline.compute import Result, compute
from bccnd.pipeline.inputs import MARGIN
from examples.simulation import Fleet, Simulation, write
from tests.pipeline.truth import Truth

#: tables that the truth has every column of, but for the ratio and the cause
EXACT = ("host_dim", "epochs", "messages", "link_loss", "delivery", "missed")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def read(spark: SparkSession, journal: Path) -> tuple[DataFrame, DataFrame]:
    """The rows and sessions of a journal."""
    obs = spark.read.schema(schema.OBS).parquet(str(journal / "obs"))
    if not (journal / "sessions").exists():
        return obs, spark.createDataFrame([], schema.SESSIONS)
    return obs, spark.read.schema(schema.SESSIONS).parquet(str(journal / "sessions"))


def tables_of(result: Result) -> dict[str, set[tuple[Any, ...]]]:
    """All tables as sets of plain rows: masks are sets of hosts, times are microseconds."""
    bits: dict[str, dict[int, str]] = {}
    for row in result.tables["host_dim"].collect():
        bits.setdefault(str(row["day"]), {})[row["bit"]] = row["host"]
    return {name: _plain(name, frame, bits, result.words) for name, frame in result.tables.items()}


def _plain(name: str, frame: DataFrame, bits: dict[str, dict[int, str]], words: int) -> set[tuple[Any, ...]]:
    times = [field.name for field in schema.TABLES[name] if field.dataType.typeName() == "timestamp"]
    frame = frame.withColumns({time: F.unix_micros(time) for time in times})
    frame = frame.withColumn("day", F.col("day").cast("string"))
    found: set[tuple[Any, ...]] = set()
    rows = frame.collect()
    for row in rows:
        plain = row.asDict()
        for mask in schema.MASKS.get(name, ()):
            mine = [plain[mask], *[plain.pop(f"{mask}_{word}") for word in range(1, words)]]
            plain[mask] = frozenset(
                bits[plain["day"]][word * schema.WORD + bit]
                for word, each in enumerate(mine)
                for bit in range(schema.WORD)
                if each >> bit & 1
            )
        if name == "link_loss":
            due = plain["expected"] - plain["not_listening"]
            ratio = plain.pop("loss_ratio")
            there = plain["any_seen"] > plain["not_listening"]
            assert ratio == ((plain["lost_here"] + plain["lost_everywhere"]) / due if there else None)
        if name == "epochs":
            plain.pop("cause")
        found.add(tuple(plain.values()))
    assert len(found) == len(rows), f"{name} has rows twice"
    return found


def differences(tables: dict[str, set[tuple[Any, ...]]], truth: Truth) -> dict[str, tuple[list[Any], list[Any]]]:
    """Per table what should not be there and what should be and is not; empty where all is as it should be."""
    found = {}
    for name in EXACT:
        should = truth.table(name)
        if tables[name] != should:
            found[name] = (sorted(tables[name] - should, key=repr)[:4], sorted(should - tables[name], key=repr)[:4])
    return found


def check(spark: SparkSession, fleet: Fleet, journal: Path) -> tuple[Simulation, Result]:
    """Compute a fleet's tables and compare all of them with the truth."""
    simulation = write(fleet, str(journal))
    result = compute(spark, *read(spark, journal))
    assert differences(tables_of(result), Truth(simulation)) == {}
    return simulation, result


def around(obs: DataFrame, days: Sequence[str]) -> DataFrame:
    """The rows of some days and of the margin around them."""
    wanted = F.lit(False)
    for day in days:
        start = datetime.datetime.combine(datetime.date.fromisoformat(day), datetime.time(), datetime.UTC)
        end = start + datetime.timedelta(days=1) + MARGIN
        wanted = wanted | F.col("ts").between(start - MARGIN, end)
    return obs.filter(wanted)


def causes(result: Result) -> dict[tuple[str, int], str]:
    """The cause of each epoch."""
    return {(row["src"], row["epoch"]): row["cause"] for row in result.tables["epochs"].collect()}
