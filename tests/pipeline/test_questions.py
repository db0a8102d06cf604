"""The questions of docs/pipeline.md: each statement of examples/questions.sql has the same rows in Spark and in DuckDB,
and not none."""

from __future__ import annotations

import datetime
import re
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

import bccnd.pipeline
from bccnd.pipeline import schema
from bccnd.pipeline.driver.build import build
from bccnd.pipeline.driver.embedded import EmbeddedRunner
from examples.fleet_model import Fleet, Forged, Loss, Restart, Source
from examples.simulation import write
from tests.support import ROOT

PAGE = (ROOT / "docs/pipeline.md").read_text()
_SECTION = PAGE.partition("## Ten questions\n")[2].partition("\n## ")[0]
#: (question, statement)
QUESTIONS = [
    (part.partition("\n")[0], statement)
    for part in (ROOT / "examples/questions.sql").read_text().split("\n--- ")[1:]
    for statement in re.findall(r"^(?:SELECT|WITH)[^;]*", part, re.MULTILINE)
]
(PYTHON,) = re.findall(r"```python\n(.*?)```", _SECTION, re.DOTALL)
PLACE = "/var/lib/bccnd/tables"


@pytest.fixture(scope="module")
def engines(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """Spark and DuckDB with the tables of four hosts that give every question something to answer."""
    folder = tmp_path_factory.mktemp("questions")
    hosts = tuple(f"relay{number:02d}" for number in range(1, 5))
    sources = (
        Source("relay01/meter", "relay01", channels=("meter/relay01",), heartbeat=5.0),
        Source("relay02/meter", "relay02", channels=("meter/relay02",), restarts=(Restart(100.0, 1),)),
        Source("relay03/cardsys/1201", "relay03", channels=("cardsys/all", "cardsys/tx"), heartbeat=5.0, until=150.0),
        Source("relay03/cardsys/1399", "relay03", channels=("cardsys/all",), heartbeat=5.0, since=200.0),
    )
    losses = (Loss("relay02", probability=0.1), Loss(None, "relay01/meter", every=17))
    forged = (Forged(60.0, 30.0, 40, "relay01/meter"),)
    fleet = Fleet(hosts, sources, 300.0, losses=losses, forged=forged, offsets={"relay04": 0.25})
    write(fleet, str(folder / "journal"))
    build(EmbeddedRunner(), str(folder / "journal"), str(folder / "tables"))
    assert PLACE in PYTHON
    exec(PYTHON.replace(PLACE, str(folder / "tables")), {})
    spark.conf.set("bccnd.tables", str(folder / "tables"))
    for table in schema.TABLES:
        bccnd.pipeline.read(spark, str(folder / "tables"), table).createOrReplaceTempView(table)
    return spark


def test_spark_reads_a_table_without_any_jar(engines: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(import bccnd.pipeline\n.*?)```", PAGE, re.DOTALL)
    assert PLACE in block
    exec(block.replace(PLACE, engines.conf.get("bccnd.tables") or ""), {"spark": engines})
    assert "sum(lost_here)" in capsys.readouterr().out


@pytest.mark.parametrize(("question", "statement"), QUESTIONS, ids=[question for question, _ in QUESTIONS])
def test_spark_and_duckdb_give_the_same_answer(engines: SparkSession, question: str, statement: str) -> None:
    by_spark = [tuple(map(plain, row)) for row in engines.sql(statement).collect()]
    by_duckdb = [tuple(map(plain, row)) for row in duckdb.execute(statement).fetchall()]
    assert by_spark
    assert by_spark == by_duckdb


def plain(value: Any) -> Any:
    """A value without what distinguishes the types of both engines; Spark's times are local."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    return round(value, 6) if isinstance(value, float) else value
