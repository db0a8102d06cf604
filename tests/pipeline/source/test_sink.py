"""The data source as a sink: rows on the bus, with keys that stay the same, or nothing of a partition."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import bccnd
from bccnd.core.wire.bccn1 import MAX_SEND
from bccnd.errors import PipelineError
from bccnd.pipeline.source import sink
from bccnd.pipeline.source.bccn import BccnSource
from bccnd.pipeline.source.sink import Pace, SinkSettings, key_of, publish, read_settings
from tests.e2e.harness import Daemon, Wire
from tests.pipeline.journals import heard, put, rows
from tests.refusals import refused

PLAIN = StructType([StructField("chan", StringType()), StructField("payload", BinaryType())])
KEYED = StructType([*PLAIN.fields, StructField("key", StringType())])


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("sink") / "daemon") as started:
        yield started


@pytest.fixture
def listener(daemon: Daemon) -> Iterator[bccnd.Connection]:
    with daemon.connect("") as bus:
        yield bus


def options(columns: StructType = PLAIN, **given: str) -> SinkSettings:
    return read_settings(given, columns)


def batch(*rows: tuple[str | None, bytes | None], keys: list[str | None] | None = None) -> pa.RecordBatch:
    columns = {"chan": pa.array([chan for chan, _ in rows], pa.string())}
    columns["payload"] = pa.array([payload for _, payload in rows], pa.binary())
    if keys is not None:
        columns["key"] = pa.array(keys, pa.string())
    return pa.RecordBatch.from_pydict(columns)


def messages(count: int) -> pa.RecordBatch:
    return batch(*[("a/b", b"%d" % number) for number in range(count)])


def test_rows_are_messages_for_this_host_and_the_segment(daemon: Daemon, listener: bccnd.Connection) -> None:
    with Wire(daemon.port) as wire:
        done = publish(iter([messages(3), batch(("!", b"all"), ("c", None))]), options(socket=str(daemon.bus)))
        assert (done.messages, done.bytes) == (5, 6)
        assert heard(listener) == [("a/b", b"0"), ("a/b", b"1"), ("a/b", b"2"), ("!", b"all"), ("c", b"")]
        assert wire.receive(b":!|").endswith(b":!|all")


def test_keys_stand_before_payloads_where_they_are_wanted(daemon: Daemon, listener: bccnd.Connection) -> None:
    settings = options(socket=str(daemon.bus), key="header", job="j")
    publish(iter([messages(2)]), settings)
    publish(iter([messages(2)]), settings)
    keys = [key_of("j//0", number).encode() for number in range(2)]
    assert heard(listener) == [("a/b", keys[0] + b"|0"), ("a/b", keys[1] + b"|1")] * 2
    own = options(KEYED, socket=str(daemon.bus))
    publish(iter([batch(("a", b"x"), ("a", b"y"), keys=["k1", None])]), own)
    (_, first), (_, second) = heard(listener)
    assert first == b"k1|x"
    assert len(second) == 32 + 2
    publish(iter([batch(("a", b"x"), keys=["k1"])]), options(KEYED, socket=str(daemon.bus), key="none"))
    assert heard(listener) == [("a", b"x")]


def test_nothing_of_a_partition_is_sent_of_which_a_row_cannot_be(daemon: Daemon, listener: bccnd.Connection) -> None:
    rows: list[tuple[str | None, bytes]] = [("a/b", b"x" * 1400), ("two words", b"x"), ("", b"x"), (None, b"x")]
    for row, named in zip(rows, ("1400", "'two words'", "''", "no channel"), strict=True):
        with refused("bad_row", named, kind=PipelineError):
            publish(iter([messages(1000), batch(row), messages(3)]), options(socket=str(daemon.bus)))
    for key in ("", "a|b", "x" * 129, "\xe4", "a\nb"):  # could not be distinguished from a payload
        with refused("bad_row", "key", kind=PipelineError):
            publish(iter([batch(("a", b"x"), keys=[key])]), options(KEYED, socket=str(daemon.bus)))
    assert heard(listener) == []


def test_the_longest_row_that_is_let_pass_is_one_that_fits(daemon: Daemon, listener: bccnd.Connection) -> None:
    with bccnd.connect(str(daemon.bus)) as bus:
        identity = len(bus.identity())
    most = MAX_SEND - len(b"BCCN1[1400]:hmac=0123456789abcdef") - 3 - 20 - identity - len("a/b")
    publish(iter([batch(("a/b", b"x" * most))]), options(socket=str(daemon.bus)))
    assert [len(payload) for _, payload in heard(listener)] == [most]
    with pytest.raises(PipelineError):
        publish(iter([batch(("a/b", b"x" * (most + 1)))]), options(socket=str(daemon.bus)))


def test_a_refusal_or_an_absent_daemon_fails_the_task(tmp_path: Path) -> None:
    access = [{"publish": ["other/"]}, {"user": "root", "publish": ["other/"]}]
    with (
        Daemon(tmp_path / "b", {"access": access, "names": "perl-safe"}) as daemon,
        refused("refused", kind=PipelineError),
    ):
        publish(iter([batch(("a-b", b"x"))]), options(socket=str(daemon.bus)))
    with refused("no_daemon"):
        publish(iter([messages(1)]), options(socket=str(tmp_path / "none")))
    # A dry run needs none, and finds what would fail.
    dry = options(socket=str(tmp_path / "none"), dryRun="true")
    assert publish(iter([messages(7)]), dry).messages == 7
    with pytest.raises(PipelineError):
        publish(iter([batch(("a", b"x" * 2000))]), dry)


def test_a_rate_is_kept_by_all_tasks_together(tmp_path: Path) -> None:
    # What stands there from another time is not waited for.
    (tmp_path / "rate").write_text(f"{time.monotonic() + 10_000}")
    tasks = [Pace(str(tmp_path / "rate"), 400) for _ in range(3)]
    begin = time.monotonic()
    for task in 60 * tasks:
        task.wait()
    # 180 messages, the last of which may go a slice too early
    assert 180 / 400 - sink.SLICE - 0.01 <= time.monotonic() - begin < 60
    for task in tasks:
        task.close()


def test_bad_columns_and_options_are_refused() -> None:
    chan, payload = PLAIN.fields
    number = LongType()
    for columns in (
        *([chan], [StructField("payload", StringType())], [StructField("chan", number), payload]),
        *([chan, StructField("payload", number)], [chan, payload, StructField("key", number)]),
        [chan, payload, StructField("other", StringType())],
    ):
        with refused("bad_columns", kind=PipelineError):
            options(StructType(columns))
    calls: tuple[Callable[[], object], ...] = (
        lambda: BccnSource({}).writer(PLAIN, overwrite=True),
        lambda: BccnSource({}).streamWriter(PLAIN, overwrite=True),
        lambda: BccnSource({"nosuch": "x"}).writer(PLAIN, overwrite=False),
    )
    for call in calls:
        with pytest.raises(PipelineError):
            call()


def test_a_table_is_published_once_by_every_task(
    spark: SparkSession, daemon: Daemon, listener: bccnd.Connection
) -> None:
    frame = spark.range(40, numPartitions=2).selectExpr("'a/b' AS chan", "CAST(id AS STRING) AS payload")
    write = frame.write.format("bccn").mode("append").option("socket", str(daemon.bus)).option("key", "header")
    write.option("job", "one").option("rate", "5000").save()
    Path(tempfile.gettempdir(), f"bccnd-rate-{os.geteuid()}-{key_of('one', 0)}").unlink()
    messages = heard(listener)
    assert {payload.split(b"|")[1] for _, payload in messages} == {b"%d" % number for number in range(40)}
    assert {payload.split(b"|")[0] for _, payload in messages} == {
        key_of(f"one//{partition}", number).encode() for partition in range(2) for number in range(20)
    }
    long = spark.range(1).selectExpr("'a/b' AS chan", "repeat('x', 1500) AS payload")
    with pytest.raises(PySparkException) as caught:
        long.write.format("bccn").mode("append").option("socket", str(daemon.bus)).save()
    assert "a message on a/b has 1500 bytes of payload" in str(caught.value)
    assert heard(listener) == []


def test_a_stream_is_published_with_keys_of_its_own_batches(
    spark: SparkSession, daemon: Daemon, listener: bccnd.Connection, tmp_path: Path
) -> None:
    put(tmp_path / "journal", "a", "20231114T000000Z-00000001", 0, rows(0, 5))

    def run() -> set[bytes]:
        stream = (
            spark.readStream.schema("chan string, payload binary")
            .parquet(str(tmp_path / "journal/obs"))
            .select("chan", "payload")
            .writeStream.format("bccn")
            .option("socket", str(daemon.bus))
            .option("key", "header")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert stream.awaitTermination(100)
        assert stream.exception() is None
        messages = heard(listener)
        assert len(messages) == 5
        return {payload.partition(b"|")[0] for _, payload in messages}

    first = run()
    # the end of a batch was not recorded: it is published again with the same keys
    (tmp_path / "checkpoint/commits/0").unlink()
    (tmp_path / "checkpoint/commits/.0.crc").unlink(missing_ok=True)
    assert run() == first
    put(tmp_path / "journal", "a", "20231114T000000Z-00000001", 5, rows(5, 5))
    assert run().isdisjoint(first)
