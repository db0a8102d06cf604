"""`df.write.format("bccn")` and `df.writeStream.format("bccn")`: rows become messages, published through the daemon.

Law: at least once: a task that fails is made again, with the same keys, by which who receives can tell a message that
came before. Before anything of a partition is sent, all of it was looked at: a row that no datagram can carry fails
the job. Nothing is sent faster than `rate`, by all tasks of this host together.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import struct
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from bccnd.client import bus
from bccnd.client.transport import usual_path
from bccnd.core.bccn1 import MAX_SEND, check_chan
from bccnd.errors import BadDatagram, BusError, PipelineError
from bccnd.pipeline.source.options import Options

#: bytes of a partition that are kept in memory until all of it was looked at; the rest waits on disk
SPOOL: Final = 64 << 20
#: bytes of a datagram around src, channel and payload: ``BCCN1[1400]``, ``::|`` and a seq
_AROUND: Final = len(b"BCCN1[1400]") + 3 + 20
#: and of a check by hmac, with what stands before it
CHECK: Final = len(b":hmac=0123456789abcdef")
#: messages between two looks at what the daemon says; far fewer than it keeps for us
TURN: Final = 256
#: seconds that a task sleeps at most, and reserves of the rate at once
SLICE: Final = 0.05
#: seconds for the daemon to have dealt with all of a partition, which it may do slowly (bus.user.rate)
PATIENCE: Final = 60.0
#: what Spark tells tasks of a stream
_BATCH: Final = "streaming.sql.batchId"
_QUERY: Final = "sql.streaming.queryId"
#: characters of a key that is made here: 128 bits
_KEY: Final = 32
_MAX_KEY: Final = 128


@dataclass(frozen=True)
class SinkSettings:
    """``job`` names what is published, so that what is made again has the same keys. ``keyed``: ``<key>|`` stands
    before each payload."""

    socket: str
    job: str
    keyed: bool
    rate: float
    dry: bool
    check: int
    summary: str


@dataclass
class Done(WriterCommitMessage):
    """What a task has published."""

    messages: int
    bytes: int


def read_settings(options: Options, columns: StructType) -> SinkSettings:
    """Raises PipelineError: bad_option, bad_columns."""
    kinds = {field.name: type(field.dataType) for field in columns}
    strange = sorted(set(kinds) - {"chan", "payload", "key"})
    if kinds.get("chan") is not StringType or kinds.get("payload") not in (StringType, BinaryType) or strange:
        raise PipelineError(
            "bad_columns",
            f"these columns cannot be published: {', '.join(columns.names)}",
            "select chan (a string), payload (a string or binary) and, if there are keys, key (a string)",
        )
    if kinds.get("key", StringType) is not StringType:
        raise PipelineError("bad_columns", "the column key is no string", "cast it")
    keyed = options.one_of("key", ("header", "none"), "header" if "key" in kinds else "none")
    return SinkSettings(
        options.text("socket") or usual_path(),
        options.text("job") or uuid.uuid4().hex,
        keyed == "header",
        options.number("rate", 0.0, 0.001, 1e9),
        options.flag("dryRun"),
        int(options.number("checkBytes", CHECK, 0, 200)),
        options.text("summary"),
    )


# -- rows


@dataclass
class Row:
    """A row as it is to be sent."""

    chan: str
    payload: bytes
    key: str | None


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Raises PipelineError: bad_row, for a row without a channel."""
    names = batch.schema.names
    keys = batch.column("key").to_pylist() if "key" in names else [None] * batch.num_rows
    for chan, payload, key in zip(
        batch.column("chan").to_pylist(), batch.column("payload").to_pylist(), keys, strict=True
    ):
        if chan is None:
            raise bad_row("a row has no channel", "filter it out")
        yield Row(chan, payload.encode() if isinstance(payload, str) else payload or b"", key)


def bad_row(detail: str, remedy: str) -> PipelineError:
    return PipelineError("bad_row", f"{detail}; nothing of this partition was sent", remedy)


def key_of(job: str, batch: str, partition: int, number: int) -> str:
    """The key of a row that has none of its own: the same whenever the same row is published again."""
    return hashlib.sha256(f"{job}/{batch}/{partition}/{number}".encode()).hexdigest()[:_KEY]


def look_at(row: Row, identity: str, settings: SinkSettings) -> None:
    """Whether a datagram can carry it. Raises PipelineError: bad_row."""
    try:
        check_chan(row.chan.encode("utf-8", "replace"))
    except BadDatagram as wrong:
        raise bad_row(f"{row.chan[:200]!r} is no channel ({wrong.detail})", "publish on another") from None
    if row.key is not None and (
        not row.key.isascii() or not row.key.isprintable() or "|" in row.key or not 0 < len(row.key) <= _MAX_KEY
    ):
        raise bad_row(f"{row.key[:200]!r} is no key", f"take 1 to {_MAX_KEY} ASCII characters without '|'")
    length = len(row.payload)
    if settings.keyed:
        length += (_KEY if row.key is None else len(row.key)) + 1
    least = MAX_SEND - _AROUND - settings.check - len(identity) - len(row.chan)
    if length > least:
        raise bad_row(
            f"a message on {row.chan} has {length} bytes of payload, and at most {least} fit into a datagram",
            "send less, or divide it",
        )


# -- pace


class Pace:
    """Turns of a rate, shared by all processes of this host that name the same file: the time at which the next one is
    free stands there."""

    _NEXT: Final = struct.Struct("<d")

    def __init__(self, path: str, rate: float) -> None:
        self._rate = rate
        self._reserved = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def wait(self) -> None:
        """Until it is our turn."""
        if self._reserved:
            self._reserved -= 1
            return
        turns = max(1, int(self._rate * SLICE))
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            held = os.pread(self._file, self._NEXT.size, 0)
            now = time.monotonic()
            free = self._NEXT.unpack(held)[0] if len(held) == self._NEXT.size else now
            # What stands there from before the last boot says nothing.
            begin = max(now, free) if free - now < 3600 else now
            os.pwrite(self._file, self._NEXT.pack(begin + turns / self._rate), 0)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._reserved = turns - 1
        time.sleep(max(0.0, begin - now))

    def close(self) -> None:
        os.close(self._file)


def pace_file(job: str) -> str:
    name = hashlib.sha256(job.encode()).hexdigest()[:16]
    return os.path.join(tempfile.gettempdir(), f"bccnd-rate-{os.geteuid()}-{name}")


# -- a partition


def publish(batches: Iterator[pa.RecordBatch], settings: SinkSettings) -> Done:
    """Publish a partition. Raises PipelineError: bad_row, refused; BusError."""
    context = TaskContext.get()
    batch = (context.getLocalProperty(_BATCH) if context else None) or ""
    job = (context.getLocalProperty(_QUERY) if context and batch else None) or settings.job
    partition = context.partitionId() if context else 0
    connection = None if settings.dry else bus.connect(settings.socket)
    try:
        # The longest name that a program of this host may have, where nobody is there to ask.
        identity = connection.identity() if connection is not None else "x" * 64
        with tempfile.SpooledTemporaryFile(SPOOL) as spool:
            done = _keep(batches, spool, identity, settings)
            if connection is not None:
                spool.seek(0)
                _send(spool, connection, settings, job, batch, partition)
    finally:
        if connection is not None:
            connection.close()
    return done


def _keep(batches: Iterator[pa.RecordBatch], spool: IO[bytes], identity: str, settings: SinkSettings) -> Done:
    """Look at every row, and keep it."""
    done = Done(0, 0)
    writer: Any = None
    for batch in batches:
        for row in rows_of(batch):
            look_at(row, identity, settings)
            done.messages += 1
            done.bytes += len(row.payload)
        if not settings.dry:
            if writer is None:
                writer = pa.ipc.new_stream(pa.PythonFile(spool, "w"), batch.schema)
            writer.write_batch(batch)
    if writer is not None:
        writer.close()
    return done


def _send(
    spool: IO[bytes], connection: bus.Connection, settings: SinkSettings, job: str, batch: str, partition: int
) -> None:
    if not spool.read(1):
        return
    spool.seek(0)
    pace = Pace(pace_file(job), settings.rate) if settings.rate else None
    try:
        number = 0
        for piece in pa.ipc.open_stream(pa.PythonFile(spool, "r")):
            for row in rows_of(piece):
                if pace is not None:
                    pace.wait()
                payload = row.payload
                if settings.keyed:
                    key = row.key if row.key is not None else key_of(job, batch, partition, number)
                    payload = key.encode("ascii") + b"|" + payload
                connection.publish(row.chan, payload)
                number += 1
                if number % TURN == 0:
                    _see(connection)
        _see(connection)
    finally:
        if pace is not None:
            pace.close()


def _see(connection: bus.Connection) -> None:
    """Raises PipelineError: refused, where the daemon did not take all of it; BusError, where nobody knows."""
    for refusal in connection.sync(PATIENCE):
        raise PipelineError(
            "refused",
            f"the daemon refuses what is published on {refusal.key}: {refusal.reason}",
            "see access in its configuration, and the option checkBytes where it is too_long",
        )


# -- for Spark


def _add_up(messages: list[WriterCommitMessage | None], settings: SinkSettings) -> None:
    """Say what was published, or would have been."""
    done = [one for one in messages if isinstance(one, Done)]
    total = {"messages": sum(one.messages for one in done), "bytes": sum(one.bytes for one in done)}
    if settings.summary:
        with open(settings.summary, "a", encoding="ascii") as file:
            file.write(json.dumps({**total, "dry_run": settings.dry}) + "\n")
    if settings.dry:
        sys.stderr.write(f"bccn: {total['messages']} messages, {total['bytes']} bytes: a dry run, nothing was sent\n")


class Writer(DataSourceArrowWriter):
    """Publishes a table."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return publish(iterator, self._settings)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _add_up(messages, self._settings)


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes a stream."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return publish(iterator, self._settings)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        _add_up(messages, self._settings)


__all__ = ["BusError", "Done", "SinkSettings", "StreamWriter", "Writer", "publish", "read_settings"]
