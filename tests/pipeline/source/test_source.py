"""The data source as tables: what is read, what is not even opened, and the errors when there is nothing to read."""

from __future__ import annotations

import datetime
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as ds
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from bccnd.errors import PipelineError
from bccnd.pipeline.source.batch import BatchReader, Partition
from bccnd.pipeline.source.bccn import OBS, BccnSource
from bccnd.pipeline.source.options import Options
from tests.core.captures import pcap
from tests.e2e.harness import datagram
from tests.pipeline.journals import T, frame, put, row, rows
from tests.refusals import refused
from tests.support import ROOT

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
DAY = 86_400


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("journal")
    put(root, "relay01", "20231114T000000Z-00000001", 0, rows(0, 50))
    put(root, "relay01", "20231114T000000Z-00000001", 50, rows(50, 50, src="relay02/b/2", chan="c"))
    put(root, "relay01", "20231115T000000Z-00000002", 0, rows(DAY, 20, verdict="duplicate"))
    put(root, "relay02", "20231114T000000Z-00000003", 0, [*rows(0, 10), row(10, chan="bad chan")])
    # neither finished nor ours
    (root / "obs/host=relay01/day=2023-11-14/.half-000000000000.parquet").write_bytes(b"PAR1")
    (root / "obs/host=relay01/day=2023-11-14/notes.txt").write_text("x")
    return root


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("bccn").options(**options).load(str(path))


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


def test_spark_finds_it_by_its_name_and_reads_every_row(spark: SparkSession, journal: Path) -> None:
    frame = load(spark, journal)
    assert frame.schema == OBS
    assert frame.rdd.getNumPartitions() == 4
    truth = spark.read.schema(OBS).parquet(*[str(path) for path in journal.glob("obs/*/*/[0-9]*.parquet")])
    rows, wanted = (sorted(map(tuple, table.select(OBS.names).collect()), key=str) for table in (frame, truth))
    assert rows == wanted
    assert len(rows) == 131


def test_filters_are_taken_and_give_what_spark_would_give(pushing: SparkSession, journal: Path) -> None:
    frame = load(pushing, journal)
    early = datetime.datetime.fromtimestamp(T // 10**9 + 40, datetime.UTC)
    wanted = (
        frame.where(F.col("host") == "relay01").where(F.col("ts") >= F.lit(early)).where(F.col("src").startswith("rel"))
    ).where(F.col("chan").isin("a/b", "c") & (F.col("verdict") == "accepted"))
    assert wanted.rdd.getNumPartitions() == 3
    assert sorted(row.rec_no for row in wanted.select("rec_no").collect()) == list(range(40, 100))
    # Spark applies filters that are not understood
    assert frame.where((F.col("len") % 2 == 0) & (F.col("host") == "relay02")).count() < 11


def test_a_capture_is_a_table_too(spark: SparkSession, tmp_path: Path) -> None:
    for name, first in (("b.pcap", 5), ("a.pcap", 0)):
        frames = [frame(seq, datagram("relay01/a/1", seq + 1, "a/b", "x")) for seq in range(first, first + 5)]
        (tmp_path / name).write_bytes(pcap(frames))
    table = load(spark, tmp_path, host="relay09")
    assert table.rdd.getNumPartitions() == 1
    rows = table.orderBy("rec_no").select("host", "verdict", "rec_no", "epoch").collect()
    assert [tuple(row) for row in rows] == [("relay09", "accepted", number + 1, 1) for number in range(10)]
    assert load(spark, tmp_path / "b.pcap", HOST="relay09", port="5400").count() == 5


def test_errors_name_the_path_or_option(spark: SparkSession, tmp_path: Path) -> None:
    for path, options, message in ((tmp_path / "nowhere", {}, "nowhere"), (tmp_path, {"hots": "x"}, "hots")):
        with pytest.raises(PySparkException, match=message):
            load(spark, path, **options).count()


def reader(path: Path, columns: StructType = OBS, /, **options: str) -> BatchReader:
    batch_reader = BccnSource({"path": str(path), **options}).reader(columns)
    assert isinstance(batch_reader, BatchReader)
    return batch_reader


def files_of(reader: BatchReader) -> set[tuple[str, str, int]]:
    names = [partition.file for partition in reader.partitions() if isinstance(partition, Partition) and partition.file]
    return {(file.host, file.day, file.first) for file in names}


def read(reader: BatchReader) -> list[dict[str, Any]]:
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [row for batch in batches for row in batch.to_pylist()]


def at(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(T / 10**9 + seconds, datetime.UTC)


A, B, C = (("relay01", day, first) for day, first in (("2023-11-14", 0), ("2023-11-14", 50), ("2023-11-15", 0)))
D = ("relay02", "2023-11-14", 0)


@pytest.mark.parametrize(
    ("filters", "opened"),
    [
        ([], {A, B, C, D}),
        ([ds.EqualTo(("host",), "relay02")], {D}),
        ([ds.In(("host",), ("relay02", "relay03", None))], {D}),
        ([ds.EqualTo(("host",), "relay02"), ds.EqualTo(("host",), "relay01")], set()),
        ([ds.EqualTo(("journal_id",), "20231115T000000Z-00000002")], {C}),
        ([ds.GreaterThan(("ts",), at(20_000))], {C}),
        ([ds.LessThan(("ts",), at(20_000))], {A, B, C, D}),
        ([ds.LessThanOrEqual(("ts",), at(0))], {A, B, D}),
        ([ds.GreaterThanOrEqual(("ts",), at(0)), ds.LessThan(("ts",), at(100))], {A, B, D}),
        ([ds.EqualTo(("ts",), at(5))], {A, B, D}),
    ],
)
def test_files_whose_names_rule_them_out_are_not_opened(journal: Path, filters: list[ds.Filter], opened: Any) -> None:
    filtered = reader(journal)
    assert filtered.pushFilters(filters) == []
    assert files_of(filtered) == opened


@pytest.mark.parametrize(
    ("condition", "rule"),
    [
        (ds.EqualTo(("src",), "relay02/b/2"), lambda row: row["src"] == "relay02/b/2"),
        (ds.Not(ds.EqualTo(("src",), "relay02/b/2")), lambda row: row["src"] not in ("relay02/b/2", None)),
        (ds.In(("chan",), ("c", None, "d")), lambda row: row["chan"] == "c"),
        (ds.Not(ds.In(("chan",), ("c", "d"))), lambda row: row["chan"] not in ("c", None)),
        (ds.IsNull(("chan",)), lambda row: row["chan"] is None),
        (ds.IsNotNull(("chan",)), lambda row: row["chan"] is not None),
        (ds.StringStartsWith(("src",), "relay02/"), lambda row: (row["src"] or "").startswith("relay02/")),
        (ds.StringEndsWith(("src",), "/1"), lambda row: (row["src"] or "").endswith("/1")),
        (ds.StringContains(("verdict",), "upli"), lambda row: row["verdict"] == "duplicate"),
        (ds.GreaterThan(("rec_no",), 45), lambda row: row["rec_no"] > 45),
        (ds.LessThanOrEqual(("len",), 40), lambda row: row["len"] <= 40),
        (ds.GreaterThanOrEqual(("ts",), at(60)), lambda row: row["ts"] >= at(60)),
        (ds.EqualTo(("ts",), at(7)), lambda row: row["ts"] == at(7)),
        (ds.LessThan(("src",), "relay02"), lambda row: row["src"] is not None and row["src"] < "relay02"),
    ],
)
def test_a_filter_that_is_taken_leaves_what_sql_leaves(journal: Path, condition: ds.Filter, rule: Any) -> None:
    everything = read(reader(journal))
    filtered = reader(journal)
    assert filtered.pushFilters([condition]) == []
    got = read(filtered)
    assert got == [row for row in everything if rule(row)]
    assert 0 < len(got) < len(everything)


@pytest.mark.parametrize(
    "condition",
    [
        *(ds.EqualTo(("payload",), b"x"), ds.EqualTo(("nosuch",), "x"), ds.EqualTo(("a", "b"), "x")),
        *(ds.EqualTo(("peer_port",), 2**40), ds.EqualTo(("src",), 7), ds.EqualTo(("src",), None)),
        *(ds.In(("payload",), (b"x",)), ds.Not(ds.EqualTo(("payload",), b"x"))),
    ],
)
def test_a_filter_that_is_not_understood_is_given_back(journal: Path, condition: ds.Filter) -> None:
    filtered = reader(journal)
    assert filtered.pushFilters([condition]) == [condition]
    assert len(read(filtered)) == 131


def test_columns_can_be_chosen(journal: Path) -> None:
    columns = StructType().add("seq_key", "long").add("rec_no", "long")
    assert set(read(reader(journal, columns))[0]) == {"seq_key", "rec_no"}


def test_a_file_that_is_no_journals_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "obs/host=a/day=2023-11-14"
    folder.mkdir(parents=True)
    path = folder / "20231114T000000Z-00000001-000000000000.parquet"
    path.write_bytes(b"PAR1 not really")
    with refused("bad_file", path.name, kind=PipelineError):
        read(reader(tmp_path))
    pq.write_table(pa.table({"x": [1]}), path)
    with refused("bad_file", path.name, kind=PipelineError):
        read(reader(tmp_path))


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    for reason, options in (
        *(("no_journal", {}), ("no_journal", {"host": "a"}), ("bad_option", {"port": "0", "host": "a"})),
        *(("bad_option", {"required": "yes", "host": "a"}), ("bad_option", {"algorithm": "md5", "host": "a"})),
        *(("bad_option", {"algorithm": "hmac", "host": "a"}), ("bad_option", {"keys": "/nowhere", "host": "a"})),
    ):
        with pytest.raises(PipelineError) as caught:
            reader(tmp_path, **options).partitions()
        assert (caught.value.reason, bool(caught.value.remedy)) == (reason, True), options
    (tmp_path / "x.pcap").write_bytes(pcap([]))
    for path in (tmp_path, tmp_path / "x.pcap"):
        with pytest.raises(PipelineError, match="host"):
            reader(path).partitions()
    # The case of letters in the name of an option does not matter.
    asked = Options({"MaxRecords": "7", "Flag": "true"}, ("maxRecords", "flag"))
    assert (asked.number("maxrecords", 0, 1, 9), asked.flag("flag"), asked.text("other", "x")) == (7, True, "x")


def test_a_program_that_only_publishes_does_not_load_it() -> None:
    code = "import sys, bccnd.cli.main; print([name for name in sys.modules if 'pyspark' in name or 'pyarrow' in name])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_module_that_spark_looks_for_is_in_every_wheel() -> None:
    import pyspark_bccn

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["py-modules"] == [pyspark_bccn.__name__]
    assert pyspark_bccn.__name__.startswith("pyspark_")
    assert pyspark_bccn.DefaultSource is BccnSource
