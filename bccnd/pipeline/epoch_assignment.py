"""Assigns rows of messages to epochs, many rows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from bccnd.pipeline.epoch_alignment import Piece
from bccnd.pipeline.row_batch import Numbers, Origin, grouped

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
            number, at, key, found = rec_no[rows], ts[rows], seq_key[rows], epoch[rows]
            for piece in pieces:
                inside = (found == NOWHERE) & (piece.from_rec <= number) & (number <= piece.to_rec)
                inside &= (piece.from_ts <= at) & (at <= piece.to_ts) & (piece.lo_key <= key) & (key <= piece.hi_key)
                found[inside] = piece.epoch
            epoch[rows] = found
        return epoch
