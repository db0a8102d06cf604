"""Sums over a stream of batches, grouped, in bounded memory.

Law: at most so many groups are kept one by one, those with the greatest weight; of the others it is known how many
there were, and what they sum up to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

#: rows of partial sums that may wait before they are brought together
_WAITING: Final = 200_000


class Tally:
    """``how`` says for each column how it is brought together: sum, min or max. ``weight`` is the column by which it is
    decided who stays when there are more than ``cap`` groups."""

    def __init__(self, keys: Sequence[str], how: Mapping[str, str], weight: str, cap: int) -> None:
        self._keys = list(keys)
        self._how = dict(how)
        self._weight = weight
        self._cap = cap
        self._parts: list[pa.Table] = []
        self._waiting = 0
        #: groups that are not listed, at least; one that came back after it was left out counts again
        self.folded = 0
        #: what these sum up to, by column
        self.rest: dict[str, int] = dict.fromkeys((name for name, one in how.items() if one == "sum"), 0)

    def add(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        part = self._grouped(table)
        self._parts.append(part)
        self._waiting += part.num_rows
        if self._waiting > _WAITING:
            self._compact()

    def rows(self) -> list[dict[str, Any]]:
        """The groups, the heaviest first."""
        table = self._compact()
        if table is None:
            return []
        order = [(self._weight, "descending"), *((key, "ascending") for key in self._keys)]
        return list(table.sort_by(order).to_pylist())

    def _grouped(self, table: pa.Table) -> pa.Table:
        grouped = table.group_by(self._keys, use_threads=False).aggregate(list(self._how.items()))
        return grouped.select(self._keys + [f"{name}_{how}" for name, how in self._how.items()]).rename_columns(
            [*self._keys, *self._how]
        )

    def _compact(self) -> pa.Table | None:
        if not self._parts:
            return None
        table = self._grouped(pa.concat_tables(self._parts)) if len(self._parts) > 1 else self._parts[0]
        if table.num_rows > self._cap:
            order = [(self._weight, "descending"), *((key, "ascending") for key in self._keys)]
            table = table.sort_by(order)
            gone = table.slice(self._cap)
            self.folded += gone.num_rows
            for name in self.rest:
                self.rest[name] += pc.sum(gone[name]).as_py() or 0
            table = table.slice(0, self._cap)
        self._parts, self._waiting = [table], 0
        return table
