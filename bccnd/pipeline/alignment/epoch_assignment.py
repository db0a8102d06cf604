"""Assigns rows of messages to epochs, many rows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from bccnd.pipeline.records.row_batch import Numbers, Origin, grouped
from bccnd.pipeline.records.source_runs import Piece

#: the epoch of a row that belongs to none
NOWHERE: Final = -(2**63)


class EpochAssignment(NamedTuple):
    """The epochs of sources: the number of the only one, or the pieces of each journal (`Alignment`)."""

    single: Mapping[str, int]
    pieces: Mapping[str, Mapping[Origin, Sequence[Piece]]]

    @classmethod
    def of(cls, epochs: pa.Table, pieces: pa.Table) -> EpochAssignment:
        """From the epochs (src, epoch) and the pieces (src and the fields of `Piece`) of all sources."""
        divided: dict[str, dict[Origin, list[Piece]]] = {}
        for src, *fields in zip(*(column.to_pylist() for column in pieces.columns), strict=True):
            piece = Piece(*fields)
            divided.setdefault(src, {}).setdefault(Origin(piece.host, piece.journal_id), []).append(piece)
        single = dict(zip(epochs["src"].to_pylist(), epochs["epoch"].to_pylist(), strict=True))
        return cls({src: epoch for src, epoch in single.items() if src not in divided}, divided)

    def epochs(
        self,
        names: Sequence[str],
        src: Numbers,
        origins: Sequence[Origin],
        origin: Numbers,
        rec_no: Numbers,
        ts: Numbers,
        seq_key: Numbers,
    ) -> Numbers:
        """The epoch of each row, NOWHERE where no piece has it; ``src`` and ``origin`` are indexes of the names."""
        epoch: Numbers = np.array([self.single.get(name, NOWHERE) for name in names], np.int64)[src]
        divided = np.array([name in self.pieces for name in names], bool)[src]
        for rows in grouped(src, origin, among=np.flatnonzero(divided)).slices():
            pieces = self.pieces[names[src[rows[0]]]].get(origins[origin[rows[0]]], ())
            epoch[rows] = _of_pieces(pieces, rec_no[rows], ts[rows], seq_key[rows], epoch[rows])
        return epoch


def _of_pieces(pieces: Sequence[Piece], rec_no: Numbers, ts: Numbers, seq_key: Numbers, epoch: Numbers) -> Numbers:
    """The epochs of rows of one journal and source; of several pieces that hold a row the first one counts.

    A piece is compared only with rows that its numbers and times permit, so that many pieces cost no more than few.
    """
    order = np.argsort(rec_no, kind="stable")
    number, at, key, assigned = rec_no[order], ts[order], seq_key[order], epoch[order]
    # Times rise with numbers, unless the clock was set back.
    rising = bool(np.all(at[1:] >= at[:-1]))
    for piece in pieces:
        low, high = np.searchsorted(number, piece.from_rec), np.searchsorted(number, piece.to_rec, "right")
        if rising:
            low = max(low, np.searchsorted(at, piece.from_ts))
            high = min(high, np.searchsorted(at, piece.to_ts, "right"))
        if low >= high:
            continue
        part = slice(low, high)
        inside = (assigned[part] == NOWHERE) & (piece.from_ts <= at[part]) & (at[part] <= piece.to_ts)
        inside &= (piece.lo_key <= key[part]) & (key[part] <= piece.hi_key)
        assigned[part][inside] = piece.epoch
    result = np.empty_like(assigned)
    result[order] = assigned
    return result
