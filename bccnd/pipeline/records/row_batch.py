"""Rows of journal files as columns of numbers: what the scan works on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bccnd.pipeline.records.task_records import ARRIVED, DAY, MINUTE, NAMELESS, day_of

#: columns of the journal that are read; names are read as dictionaries
NAMES: Final = ("segment", "peer_ip", "verdict", "algo", "src", "chan")
NUMBERS: Final = ("rec_no", "ts", "peer_port", "seq_key", "epoch", "len")
COLUMNS: Final = (*NUMBERS, *NAMES)

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
    """A column of names: for each row the index of its name, -1 where it has none."""

    codes: Numbers
    values: list[str]

    def among(self, chosen: Collection[str]) -> Numbers:
        """Which rows have one of these names."""
        return self.map(lambda value: value in chosen, False)

    def map(self, of: Callable[[str], Any], otherwise: Any) -> Numbers:
        """For each row what a function returns for its name, or ``otherwise`` where it has none."""
        return np.array([*map(of, self.values), otherwise])[self.codes]

    def take(self, rows: Numbers) -> pa.Array:
        """The names of these rows."""
        codes = self.codes[rows]
        return pa.array(self.values, pa.string()).take(pa.array(codes, mask=codes < 0))


class Batch:
    """Rows of some journals, each journal's in the order of its records.

    ``origin`` has for each row the index of its journal in ``origins``; times are microseconds since 1970.
    """

    def __init__(self, origins: Sequence[Origin], origin: Numbers, table: pa.Table) -> None:
        self.origins = list(origins)
        self.origin = origin
        table = table.unify_dictionaries().combine_chunks()
        self.rec_no, self.ts, self.peer_port, self.seq_key, self.epoch, self.length = (
            table[name].fill_null(0).cast(pa.int64()).to_numpy() for name in NUMBERS
        )
        self.segment, self.peer_ip, self.verdict, self.algo, self.src, self.chan = (
            _names(table[name]) for name in NAMES
        )
        self.date = self.ts // DAY
        self.minute = self.ts // MINUTE
        self.arrived = self.verdict.among(ARRIVED)
        self.named = self.src.map(lambda src: src != NAMELESS, False)
        #: rows of messages that have a sender and a number
        self.tracked = self.arrived & self.named & table["seq_key"].is_valid().to_numpy()

    @cached_property
    def src_hash(self) -> Numbers:
        """64 bits for the sender of each row, the same in every task."""
        return self.src.map(name_hash, 0).astype(np.uint64)

    def labels(self, rows: Numbers) -> dict[str, pa.Array]:
        """The day, the journal and the names of these rows, as fields of records (`task_records.KINDS`)."""
        origins = [self.origins[index] for index in self.origin[rows].tolist()]
        return {
            "day": day_names(self.date[rows]),
            "host": pa.array([origin.host for origin in origins], pa.string()),
            "journal_id": pa.array([origin.journal_id for origin in origins], pa.string()),
            **{name: getattr(self, name).take(rows) for name in NAMES},
        }


def _names(column: pa.ChunkedArray) -> Names:
    if not column.num_chunks:
        return Names(np.zeros(0, np.int64), [])
    chunk = column.chunk(0)
    return Names(chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False), chunk.dictionary.to_pylist())


def day_names(dates: Numbers) -> pa.Array:
    """The days with these numbers (`day_of`)."""
    different, index = np.unique(dates, return_inverse=True)
    return pa.array(map(day_of, different.tolist()), pa.string()).take(pa.array(index))


def name_hash(name: str) -> int:
    """64 bits that stand for a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def mixed(values: Numbers) -> Numbers:
    """64 bits that look like chance, from 64 that do not (the last steps of splitmix64)."""
    bits = values.astype(np.uint64) + GOLDEN
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    result: Numbers = bits ^ (bits >> np.uint64(31))
    return result


class Groups(NamedTuple):
    """Rows in an order in which those with the same values are adjacent; ``starts`` is where each group begins."""

    order: Numbers
    starts: Numbers

    @property
    def heads(self) -> Numbers:
        """The first row of each group."""
        heads: Numbers = self.order[self.starts]
        return heads

    @property
    def tails(self) -> Numbers:
        """The last row of each group."""
        tails: Numbers = self.order[np.append(self.starts, len(self.order))[1:] - 1]
        return tails

    def reduce(self, how: np.ufunc, values: Numbers) -> Numbers:
        """The values of each group combined."""
        combined: Numbers = how.reduceat(values[self.order], self.starts)
        return combined

    def union(self, sets: Numbers) -> Numbers:
        """The union of the sets of each group's rows (`receivers.Bits`)."""
        return np.stack([self.reduce(np.bitwise_or, word) for word in sets.T], axis=1)

    def sizes(self) -> Numbers:
        """How many rows each group has."""
        sizes: Numbers = np.diff(np.append(self.starts, len(self.order)))
        return sizes

    def slices(self) -> list[Numbers]:
        """The rows of each group."""
        return np.split(self.order, self.starts)[1:]


def grouped(*columns: Numbers, among: Numbers | None = None) -> Groups:
    """Rows, or those ``among`` them, grouped by the values of columns; within a group they stay in their order."""
    order = sorted_by(*columns, among=among)
    return Groups(order, np.flatnonzero(changes(order, *columns)))


def sorted_by(*columns: Numbers, among: Numbers | None = None) -> Numbers:
    """Rows, or those ``among`` them, in the order of columns, the first one first; equal rows stay in their order."""
    chosen = columns if among is None else [column[among] for column in columns]
    keys = chosen[0] if len(chosen) == 1 else _packed(chosen)
    order: Numbers = np.lexsort(chosen[::-1]) if keys is None else np.argsort(keys, kind="stable")
    return order if among is None else among[order]


def _packed(columns: Sequence[Numbers]) -> Numbers | None:
    """Columns as one number for each row, in the same order; None where they do not fit into 63 bits."""
    total: Numbers = np.zeros(len(columns[0]), np.int64)
    room = 1
    for column in columns if len(total) else ():
        low = int(column.min())
        width = int(column.max()) - low + 1
        room *= width
        if room >= 2**63:
            return None
        total = total * width + (column.astype(np.int64) - low)
    return total


def changes(order: Numbers, *columns: Numbers) -> Numbers:
    """Where, in this order, a row differs from the one before it in any column; the first one does."""
    differs = np.zeros(len(order), bool)
    differs[:1] = True
    for column in columns:
        values = column[order]
        differs[1:] |= values[1:] != values[:-1]
    return differs
