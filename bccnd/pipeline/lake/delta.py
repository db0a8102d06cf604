"""The Delta tables below a folder or URI, and the builds that name one state of all of them.

Invariant: the table ``builds`` is written last, and its newest row names the version of every other table. A run that
fails, is killed or loses against another one changes no version that is named there, and deletes no file of one. A
commit succeeds only if no other run has committed to its table since this one began: of two runs one is refused.
Source: the Delta transaction protocol (https://github.com/delta-io/delta/blob/master/PROTOCOL.md).
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import secrets
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from bccnd.errors import PipelineError
from bccnd.pipeline.lake import parquet
from bccnd.pipeline.lake.parquet import DAY, File, day_of
from bccnd.pipeline.lake.place import Root, usable

#: the table of builds, and the folder of what runs keep for later ones
BUILDS: Final = "builds"
STATE: Final = "_state"
#: kept there: the files that the tables of each day were made of; and, not divided by days, the sessions of receivers,
#: files of the journal that cannot be used, records that it lacks, and files that came after their day was final
FILES: Final = f"{STATE}/files"
SESSIONS: Final = f"{STATE}/sessions"
DAMAGED: Final = f"{STATE}/damaged"
MISSING: Final = f"{STATE}/missing"
LATE: Final = f"{STATE}/late"
#: the version of the columns of tables and states, which the description of `BUILDS` ends with
FORMAT: Final = "5"
#: seconds for which replaced versions stay readable
KEEP: Final = 86_400.0
#: what delta-rs cannot have in the path of a folder
_NO_NAME: Final = re.compile(r"[\x00-\x1f\x7f\[\]^|\\\udc80-\udcff]|%[0-9A-Fa-f]{2}")
#: tables opened or committed side by side: waiting for a disk or a store, not computing
_THREADS: Final = 8
#: versions between two checkpoints of a table's log, and how long a log is kept beside replaced versions
_CHECKPOINT: Final = "20"
_LOG_MARGIN: Final = 86_400.0
_BUILD: Final = pa.schema(
    [
        ("build_id", pa.string()),
        ("finished_ts", pa.timestamp("us", tz="UTC")),
        ("versions", pa.map_(pa.string(), pa.int64())),
    ]
)


class Build(NamedTuple):
    """A row of `BUILDS`: when a run had written all tables (microseconds since 1970), and their versions then."""

    build_id: str
    finished: int
    versions: Mapping[str, int]


@dataclass
class Change:
    """What a run does to a table: its columns without the day, whether it is divided by days (the day of a table that
    is not is empty), the files written, and the days whose old files go."""

    columns: pa.Schema
    divided: bool = True
    written: list[File] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)


class Lake:
    """The tables below a folder or URI in the state of the last build. Raises PipelineError: no_place, old_tables."""

    def __init__(self, where: str) -> None:
        with _explained(where):
            self.root = Root(where)
            # delta-rs follows links before it looks at the names, and decodes escapes in them.
            if self.root.is_local and (bad := _NO_NAME.search(os.path.realpath(self.root.path))):
                raise OSError(errno.EINVAL, f"delta-rs supports no {bad[0]!r} in a path: choose another name")
            self._options = _storage_options(self.root.where)
            self.root.names()  # pyarrow explains better than delta-rs why a store cannot be used
            self._builds = self._open(BUILDS)
            self.builds: list[Build] = []
            if self._builds is not None:
                if self._builds.metadata().description.split()[-1:] != [FORMAT]:
                    raise PipelineError(
                        "old_tables",
                        f"the tables in {where} were made by another version of bccn with other columns",
                        "build them again in a new folder (bccn pipeline build JOURNAL --out FOLDER), or remove them",
                    )
                self.builds = sorted(self._read_builds(), key=lambda build: build.finished)
            self.build = self.builds[-1] if self.builds else Build("", 0, {})
            self._newest: dict[str, DeltaTable | None] = {}

    def _open(self, table: str, version: int | None = None) -> DeltaTable | None:
        """A table at a version, by default the newest; None if there is no such table."""
        place = _uri(self.root, table)
        with suppress(TableNotFoundError):
            return DeltaTable(place, version=version, storage_options=self._options)
        return None

    def _read_builds(self) -> Iterator[Build]:
        for file in _files(self._builds):
            with self.root.filesystem.open_input_file(f"{self.root.path}/{BUILDS}/{file.path}") as source:
                table = pq.read_table(source, schema=_BUILD)
            columns = table["build_id"], table["finished_ts"].cast(pa.int64()), table["versions"]
            for build_id, finished, versions in zip(*(column.to_pylist() for column in columns), strict=True):
                yield Build(build_id, finished, dict(versions))

    # -- reading

    @property
    def tables(self) -> set[str]:
        """The tables of the last build."""
        return set(self.build.versions)

    def files(self, table: str) -> list[File]:
        """The files of a table in the last build; none of a table that it does not name. Raises PipelineError:
        renewed."""
        version = self.build.versions.get(table)
        if version is None:
            return []
        with _explained(self.root.where):
            newest = self._newest.get(table)
            if newest is not None and newest.version() == version:
                return _files(newest)
            delta_table = self._open(table, version)
        if delta_table is None:
            detail = f"the version {version} of the table {table} in {self.root.where} was removed"
            raise PipelineError("renewed", detail, "try again in a moment")
        return _files(delta_table)

    def days(self, table: str) -> set[str]:
        """The days of which a table has rows."""
        return {file.day for file in self.files(table)}

    def load(self, table: str, columns: pa.Schema, days: Collection[str] | None = None) -> pa.Table:
        """The rows of a table in the last build, or of these days, with these columns (see `parquet.load`)."""
        paths = [file.path for file in self.files(table) if days is None or file.day in days]
        with _explained(self.root.where):
            return parquet.load(self.root, table, paths, columns)

    def columns(self, table: str) -> pa.Schema:
        """The columns of a table of the last build, with that of the day."""
        with _explained(self.root.where):
            delta_table = self._open(table, self.build.versions[table])
            return pa.schema(delta_table.schema().to_arrow()) if delta_table is not None else pa.schema([])

    # -- a run

    def begin(self, tables: Collection[str]) -> None:
        """Begin a run that may change these tables: its commit is refused if another one commits to one of them first.

        Tables that no build names are what a run has left that was ended while it committed; this one replaces them.
        Raises PipelineError: no_links.
        """
        with _explained(self.root.where), ThreadPoolExecutor(_THREADS) as pool:
            if self.root.is_local:
                os.makedirs(self.root.path, exist_ok=True)
                _check_links(self.root.path)
            names = sorted({*tables, *self.tables})
            self._newest = dict(zip(names, pool.map(self._open, names), strict=True))

    def commit(self, changes: Mapping[str, Change], keep: float = KEEP) -> None:
        """Make all changes, and name the versions that they lead to as a build. Raises PipelineError: in_use."""
        before = {name: self.files(name) for name in changes}

        def put(name: str) -> int:
            change = changes[name]
            replaced = {*change.gone, *(file.day for file in change.written)}
            kept = (file for file in before[name] if file.day not in replaced)
            return self._put(name, change.columns, [*kept, *change.written], [DAY] * change.divided, keep)

        first, *rest = sorted(changes)
        with _explained(self.root.where):
            # Of two runs that meet, the one that is first at the first table goes on to the rest.
            versions = {**self.build.versions, first: put(first)}
            with ThreadPoolExecutor(_THREADS) as pool:
                versions |= zip(rest, pool.map(put, rest), strict=True)
            self._put_build(versions, keep)

    def _put(self, name: str, columns: pa.Schema, wanted: Iterable[File], divided: list[str], keep: float) -> int:
        """Make a version of a table that has these files, and return it."""
        newest = self._builds if name == BUILDS else self._newest.get(name)
        present = {} if newest is None else {file.path: file for file in _files(newest)}
        new = {file.path: file for file in wanted}
        now = round(time.time() * 1000)
        added = [_added(file, now) for path, file in new.items() if path not in present]
        schema = Schema.from_arrow(pa.schema([*columns, *((day, pa.date32()) for day in divided)]))
        if newest is None:
            self._create(name, schema, added, divided, keep)
            return 0
        removed = [_removed(file, now) for path, file in present.items() if path not in new]
        if not added and not removed:
            return newest.version()
        # Tried once: that it is refused means that another run has committed.
        once = CommitProperties(max_commit_retries=0)
        newest.create_write_transaction([*removed, *added], "append", schema, divided, commit_properties=once)
        return newest.version() + 1

    def _create(self, name: str, schema: Schema, added: list[AddAction], divided: list[str], keep: float) -> None:
        """Make the first version of a table."""
        try:
            create_table_with_add_actions(
                _uri(self.root, name),
                schema,
                added,
                partition_by=divided,
                description=f"{name} of bccnd, format {FORMAT}",
                configuration={
                    "delta.checkpointInterval": _CHECKPOINT,
                    "delta.logRetentionDuration": f"interval {_hours(keep + _LOG_MARGIN)} hours",
                },
                storage_options=self._options,
            )
        except DeltaError as error:
            if self._open(name) is None:
                raise
            raise CommitFailedError(f"another run has made the table {name}") from error

    def _put_build(self, versions: Mapping[str, int], keep: float) -> None:
        now = time.time_ns() // 1000
        self.build = Build(secrets.token_hex(8), now, versions)
        # One file has all of them: a second run that replaces it as well is refused.
        self.builds = [*(build for build in self.builds if build.finished >= now - keep * 1e6), self.build]
        rows = [
            {"build_id": build.build_id, "finished_ts": build.finished, "versions": list(build.versions.items())}
            for build in self.builds
        ]
        path = f"{self.build.build_id}.parquet"
        place = f"{self.root.path}/{BUILDS}"
        if self.root.is_local:
            self.root.filesystem.create_dir(place)
        pq.write_table(pa.Table.from_pylist(rows, _BUILD), f"{place}/{path}", filesystem=self.root.filesystem)
        size = self.root.filesystem.get_file_info(f"{place}/{path}").size
        self._put(BUILDS, _BUILD, [File(path, "", len(rows), size)], [], keep)

    def remove_old(self, keep: float = KEEP) -> int:
        """Remove files that no build of the last ``keep`` seconds has, and those of runs that failed so long ago.
        Returns how many."""
        since = time.time_ns() // 1000 - keep * 1e6
        builds = [build for build in self.builds if build.finished >= since] or [self.build]
        removed = 0
        with _explained(self.root.where):
            for name in sorted({*self.tables, BUILDS}):
                table = self._open(name)
                if table is None:
                    continue
                versions = sorted({build.versions[name] for build in builds if name in build.versions})
                for path in table.vacuum(
                    _hours(keep), dry_run=True, enforce_retention_duration=False, full=True, keep_versions=versions
                ):
                    # A path may be a whole one.
                    self.root.remove(f"{name}/{path.rpartition(f'/{name}/')[2]}")
                    removed += 1
        return removed


def _check_links(folder: str) -> None:
    """Check that a file system has hard links, by which a commit is refused that another one has overtaken. Raises
    PipelineError: no_links; OSError."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".link-") as file:
        try:
            os.link(file.name, f"{file.name}-2")
        except OSError as error:
            detail = f"the file system of {folder} has no hard links, which Delta tables need: {error.strerror}"
            raise PipelineError("no_links", detail, "put the tables on ext4, xfs, NFS or an object store") from error
        os.unlink(f"{file.name}-2")


def _uri(root: Root, table: str) -> str:
    """The place of a table as delta-rs takes it: without keys and options."""
    if root.is_path:
        return f"{root.path}/{table}"
    parts = urlsplit(root.where)
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    return f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}/{table}"


def _storage_options(where: str) -> dict[str, str]:
    """What pyarrow takes from a URI, for delta-rs."""
    if not where.startswith(("s3://", "s3a://")):
        return {}
    parts = urlsplit(where)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")
    if "endpoint_override" in options:
        endpoint = f"{options.get('scheme', 'https')}://{options['endpoint_override']}"
    settings = {
        "AWS_ACCESS_KEY_ID": unquote(parts.username or ""),
        "AWS_SECRET_ACCESS_KEY": unquote(parts.password or ""),
        "AWS_REGION": options.get("region", ""),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true" if endpoint.startswith("http://") else "",
    }
    return {name: value for name, value in settings.items() if value}


def _files(table: DeltaTable | None) -> list[File]:
    """The files of a table, in the order of their paths."""
    actions = pa.table(table.get_add_actions(flatten=True)) if table is not None else None
    if actions is None or not actions.num_rows:
        return []
    columns = (actions[name].to_pylist() for name in ("path", "num_records", "size_bytes"))
    return sorted(File(path, day_of(path), rows, size) for path, rows, size in zip(*columns, strict=True))


def _added(file: File, now: int) -> AddAction:
    return AddAction(file.path, file.size, _partition(file), now, True, json.dumps({"numRecords": file.rows}))


def _removed(file: File, now: int) -> RemoveAction:
    return RemoveAction(file.path, True, now, file.size, _partition(file))


def _partition(file: File) -> dict[str, str | None]:
    return {DAY: file.day} if file.day else {}


def _hours(seconds: float) -> int:
    return math.ceil(seconds / 3600)


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """Explain in one line why tables cannot be used. Raises PipelineError: no_place, in_use."""
    try:
        with usable(where):
            yield
    except CommitFailedError as error:
        detail = f"another run changed the tables in {where} at the same time; this run changed nothing"
        raise PipelineError("in_use", detail, "run it again, and only one run at a time") from error
    except DeltaError as error:
        detail = f"the tables in {where} cannot be used: {str(error).splitlines()[0]}"
        raise PipelineError(
            "no_place", detail, "check the disk or store, and find the program that wrote there"
        ) from error
