"""Rows of journal files as columns of numbers: what the scan works on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bccnd.pipeline.task_records import ARRIVED, DAY, NAMELESS

#: columns of the journal that are read; names are read as dictionaries
NAMES: Final = ("segment", "peer_ip", "verdict", "algo", "src", "chan")
COLUMNS: Final = ("rec_no", "ts", "peer_port", "seq_key", "epoch", "len", *NAMES)

Numbers = np.ndarray[Any, np.dtype[Any]]
#: odd numbers that mix bits: those of splitmix64
GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)


class Origin(NamedTuple):
    """The journal of a host from which rows come."""

    host: str
    journal_id: str


class Names(NamedTuple):
    """A column of names: for each row the place of its name, -1 where it has none."""

    codes: Numbers
    values: list[str]

    def among(self, chosen: Collection[str]) -> Numbers:
        """Which rows have one of these names."""
        return self.each(lambda value: value in chosen, False)[self.codes]

    def each(self, of: Callable[[str], Any], otherwise: Any) -> Numbers:
        """What a function says of each name; last, for rows without one, something else."""
        return np.array([*map(of, self.values), otherwise])

    def take(self, codes: Numbers) -> pa.Array:
        """The names in these places."""
        return pa.array(self.values, pa.string()).take(pa.array(codes, mask=codes < 0))


class Batch:
    """Rows of some journals, each journal's in the order of its records.

    ``origin`` has for each row the place of its journal in ``origins``; times are microseconds since 1970.
    """

    def __init__(self, origins: Sequence[Origin], origin: Numbers, table: pa.Table) -> None:
        self.origins = list(origins)
        self.origin = origin
        table = table.unify_dictionaries().combine_chunks()
        self.rec_no = _numbers(table, "rec_no")
        self.ts = _numbers(table, "ts")
        self.peer_port = _numbers(table, "peer_port")
        self.seq_key = _numbers(table, "seq_key")
        self.epoch = _numbers(table, "epoch")
        self.length = _numbers(table, "len")
        self.segment, self.peer_ip, self.verdict, self.algo, self.src, self.chan = (
            _names(table, name) for name in NAMES
        )
        self.date = self.ts // DAY
        self.arrived = self.verdict.among(ARRIVED)
        self.named = self.src.each(lambda src: src != NAMELESS, False)[self.src.codes]
        numbered = table["seq_key"].is_valid().to_numpy()
        #: rows of messages that have a sender and a number
        self.tracked = self.arrived & self.named & numbered

    @cached_property
    def src_hash(self) -> Numbers:
        """64 bits for each name of a sender, the same in every task."""
        return self.src.each(name_hash, 0).astype(np.uint64)


def _numbers(table: pa.Table, name: str) -> Numbers:
    column = table[name]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    found: Numbers = column.fill_null(0).cast(pa.int64()).to_numpy()
    return found


def _names(table: pa.Table, name: str) -> Names:
    column = table[name]
    if not column.num_chunks:
        return Names(np.zeros(0, np.int64), [])
    chunk = column.chunk(0)
    return Names(chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False), chunk.dictionary.to_pylist())


def name_hash(name: str) -> int:
    """64 bits that stand for a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def mixed(values: Numbers) -> Numbers:
    """64 bits that look like chance, from 64 that do not (the last steps of splitmix64)."""
    found = values.astype(np.uint64) + GOLDEN
    found = (found ^ (found >> np.uint64(30))) * _FIRST
    found = (found ^ (found >> np.uint64(27))) * _SECOND
    result: Numbers = found ^ (found >> np.uint64(31))
    return result


class Groups(NamedTuple):
    """Rows in an order in which those with the same values stand together; ``starts`` is where each group begins."""

    order: Numbers
    starts: Numbers

    def first(self, values: Numbers) -> Numbers:
        """What the first row of each group has."""
        found: Numbers = values[self.order[self.starts]]
        return found

    def reduce(self, how: np.ufunc, values: Numbers) -> Numbers:
        """The values of each group put together."""
        found: Numbers = how.reduceat(values[self.order], self.starts)
        return found

    def sizes(self) -> Numbers:
        """How many rows each group has."""
        found: Numbers = np.diff(np.append(self.starts, len(self.order)))
        return found

    def slices(self) -> list[Numbers]:
        """The rows of each group."""
        return np.split(self.order, self.starts[1:])


def grouped(*columns: Numbers) -> Groups:
    """Rows grouped by the values of columns; within a group they stay in their order."""
    order = sorted_by(*columns)
    return Groups(order, np.flatnonzero(changes(order, *columns)))


def sorted_by(*columns: Numbers) -> Numbers:
    """The order of rows by columns, the first one first; equal rows stay in their order."""
    one = columns[0] if len(columns) == 1 else _packed(columns)
    found: Numbers = np.lexsort(columns[::-1]) if one is None else np.argsort(one, kind="stable")
    return found


def _packed(columns: Sequence[Numbers]) -> Numbers | None:
    """Columns as one number for each row, in the same order; None where they do not fit into 63 bits."""
    if not len(columns[0]):
        return columns[0]
    total: Numbers | None = None
    room = 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        width = high - low + 1
        room *= width
        if room >= 2**63:
            return None
        part = column.astype(np.int64) - low
        total = part if total is None else total * width + part
    return total


def changes(order: Numbers, *columns: Numbers) -> Numbers:
    """Where, in this order, a row differs from the one before it in any column; the first one does."""
    found = np.zeros(len(order), bool)
    if len(order):
        found[0] = True
    for column in columns:
        values = column[order]
        found[1:] |= values[1:] != values[:-1]
    return found
