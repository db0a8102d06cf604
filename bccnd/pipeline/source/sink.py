"""Publishes rows through the daemon: `df.write.format("bccn")` and `df.writeStream.format("bccn")`.

Invariant: every row is sent at least once; a task that Spark repeats sends the same keys. All rows of a partition are
checked before the first is sent.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from bccnd.client import bus
from bccnd.client.transport import usual_path
from bccnd.core.formats.durations_and_sizes import parse_number
from bccnd.core.wire.bccn1 import MAX_SEND, check_chan
from bccnd.errors import BadDatagram, PipelineError

OPTIONS: Final = ("socket", "key", "rate", "dryRun", "checkBytes", "job")
#: bytes of a partition that are kept in memory while it is checked; the rest is on disk
SPOOL: Final = 64 << 20
#: bytes of a datagram around src, channel and payload: ``BCCN1[1400]``, ``::|`` and a seq; of a check by hmac
_AROUND: Final = len(b"BCCN1[1400]") + 3 + 20
CHECK: Final = len(b":hmac=0123456789abcdef")
#: messages between two checks for refusals, and seconds for the daemon to take them (bus.user.rate may slow it)
TURN, PATIENCE = 256, 60.0
#: seconds by which messages may be early, so that a task does not sleep for each
SLICE: Final = 0.05
#: characters of a key that is made here (128 bits), of any other key, and of a time in a file
_KEY, _MAX_KEY, _DIGITS = 32, 128, 24


@dataclass(frozen=True)
class SinkSettings:
    """Options of the sink. ``keyed`` puts ``<key>|`` before each payload; ``check`` is the length of the daemon's
    check."""

    socket: str
    job: str
    keyed: bool
    rate: float
    dry: bool
    check: int


@dataclass
class Published(WriterCommitMessage):
    """Counts of what a task has published."""

    messages: int = 0
    bytes: int = 0


def read_settings(given: Mapping[str, str], columns: StructType, *more_options: str) -> SinkSettings:
    """Read the options, by name regardless of case. Raises PipelineError: bad_option, bad_columns."""
    kinds = {field.name: type(field.dataType) for field in columns}
    allowed = {"chan": (StringType,), "payload": (StringType, BinaryType), "key": (StringType,)}
    if not {"chan", "payload"} <= set(kinds) or any(kind not in allowed.get(name, ()) for name, kind in kinds.items()):
        detail = f"these columns cannot be published: {', '.join(columns.names)}"
        remedy = "select chan (a string), payload (a string or binary) and, if there are keys, key (a string)"
        raise PipelineError("bad_columns", detail, remedy)
    options = {str(name).lower(): str(value) for name, value in given.items()}
    supported = sorted([*OPTIONS, *more_options])
    for name in sorted(options.keys() - {name.lower() for name in supported}):
        raise bad_option(f"the option {name} does not exist", f"take {', '.join(supported)}")

    def choose(name: str, default: str, other: str) -> bool:
        value = options.get(name, default)
        if value not in (default, other):
            raise bad_option(f"the option {name} is {value!r}", f"use {default} or {other}")
        return value == "header" or value == "true"

    def number(name: str, default: float, least: float, most: float) -> float:
        value = parse_number(options[name]) if name in options else default
        if value is None or (name in options and not least <= value <= most):
            raise bad_option(f"the option {name} is {options[name]!r}", f"use a number from {least:g} to {most:g}")
        return value

    return SinkSettings(
        options.get("socket") or usual_path(),
        options.get("job") or uuid.uuid4().hex,
        choose("key", "header", "none") if "key" in kinds else choose("key", "none", "header"),
        number("rate", 0.0, 0.001, 1e9),
        choose("dryrun", "false", "true"),
        int(number("checkbytes", CHECK, 0, 200)),
    )


def bad_option(detail: str, remedy: str) -> PipelineError:
    return PipelineError("bad_option", detail, remedy)


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[str, bytes, str | None]]:
    """Yield channels, payloads and keys. Raises PipelineError: bad_row, for a row without a channel."""
    for row in batch.to_pylist():
        payload = row["payload"] or b""
        if row["chan"] is None:
            raise _bad_row("a row has no channel", "filter it out")
        yield row["chan"], payload.encode() if isinstance(payload, str) else payload, row.get("key")


def _bad_row(detail: str, remedy: str) -> PipelineError:
    return PipelineError("bad_row", f"{detail}; nothing of this partition was sent", remedy)


def key_of(partition: str, number: int) -> str:
    """Make the key of a row: the same whenever the same row of ``<job>/<batch>/<partition>`` is published again."""
    return hashlib.sha256(f"{partition}/{number}".encode()).hexdigest()[:_KEY]


def _check_row(chan: str, payload: bytes, key: str | None, identity: str, settings: SinkSettings) -> None:
    """Check that a datagram can carry the row. Raises PipelineError: bad_row."""
    try:
        check_chan(chan.encode("utf-8", "replace"))
    except BadDatagram as error:
        raise _bad_row(f"{chan[:200]!r} is not a valid channel ({error.detail})", "publish on another") from None
    key = "x" * _KEY if key is None else key
    if not key.isascii() or not key.isprintable() or "|" in key or not 0 < len(key) <= _MAX_KEY:
        raise _bad_row(f"{key[:200]!r} is not a valid key", f"use 1 to {_MAX_KEY} ASCII characters without '|'")
    length = len(payload) + (len(key) + 1 if settings.keyed else 0)
    most = MAX_SEND - _AROUND - settings.check - len(identity) - len(chan)
    if length > most:
        detail = f"a message on {chan} has {length} bytes of payload, and at most {most} fit into a datagram"
        raise _bad_row(detail, "shorten or divide it")


class Pace:
    """Keeps a rate in all processes of this host with the same file, which holds the next message's time."""

    def __init__(self, path: str, rate: float) -> None:
        self._rate = rate
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def wait(self) -> None:
        """Wait until the next message may go."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            now = time.monotonic()
            free = float(os.pread(self._file, _DIGITS, 0) or now)
            begin = max(now, free) if free - now < 3600 else now  # beyond that it is from before the last boot
            os.pwrite(self._file, b"%*.9f" % (_DIGITS, begin + 1 / self._rate), 0)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        if begin - now > SLICE:
            time.sleep(begin - now)

    def close(self) -> None:
        os.close(self._file)


def publish(batches: Iterator[pa.RecordBatch], settings: SinkSettings) -> Published:
    """Publish a partition. Raises PipelineError: bad_row, refused; BusError."""
    context = TaskContext.get()
    number = (context.getLocalProperty("streaming.sql.batchId") if context else None) or ""
    job = (context.getLocalProperty("sql.streaming.queryId") if context and number else None) or settings.job
    task = f"{job}/{number}/{context.partitionId() if context else 0}"
    published = Published()
    connected = nullcontext() if settings.dry else bus.connect(settings.socket)
    with tempfile.SpooledTemporaryFile(SPOOL) as spool, connected as connection:
        # in a dry run, the longest name that a program may have
        identity = "x" * 64 if connection is None else connection.identity()
        writer = None
        for batch in batches:
            for chan, payload, key in rows_of(batch):
                _check_row(chan, payload, key, identity, settings)
                published.messages += 1
                published.bytes += len(payload)
            if connection is not None:
                writer = writer or pa.ipc.new_stream(pa.PythonFile(spool, "w"), batch.schema)
                writer.write_batch(batch)
        if writer is not None and connection is not None:
            writer.close()
            spool.seek(0)
            _send(pa.ipc.open_stream(pa.PythonFile(spool, "r")), connection, settings, task)
    return published


def _send(batches: Iterable[pa.RecordBatch], connection: bus.Connection, settings: SinkSettings, task: str) -> None:
    rows = (row for batch in batches for row in rows_of(batch))
    path = f"{tempfile.gettempdir()}/bccnd-rate-{os.geteuid()}-{key_of(settings.job, 0)}"
    with closing(Pace(path, settings.rate)) if settings.rate else nullcontext() as pace:
        for number, (chan, payload, key) in enumerate(rows):
            if pace is not None:
                pace.wait()
            header = f"{key_of(task, number) if key is None else key}|".encode() if settings.keyed else b""
            connection.publish(chan, header + payload)
            if number % TURN == TURN - 1:
                _raise_refusals(connection)
    _raise_refusals(connection)


def _raise_refusals(connection: bus.Connection) -> None:
    for refusal in connection.sync(PATIENCE):
        detail = f"the daemon refuses messages on {refusal.key}: {refusal.reason}"
        remedy = "see access in its configuration; if it is too_long, the option checkBytes"
        raise PipelineError("refused", detail, remedy)


class Writer(DataSourceArrowWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]  # two signatures of abort
    """Publishes a table or a stream."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return publish(iterator, self._settings)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:  # noqa: ARG002, N803 - Spark's
        if self._settings.dry:
            tasks = [task for task in messages if isinstance(task, Published)]
            total = f"{sum(task.messages for task in tasks)} messages, {sum(task.bytes for task in tasks)} bytes"
            sys.stderr.write(f"bccn: Dry run: {total}. Nothing was sent.\n")
