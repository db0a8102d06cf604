"""Which epoch each row of a message belongs to, for many rows at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from bccnd.pipeline.epoch_alignment import Piece
from bccnd.pipeline.row_batch import Numbers, Origin, grouped

#: stands for the epoch of a row that belongs to none
NOWHERE: Final = -(2**63)


class Placement(NamedTuple):
    """The epochs of sources: the number of the only one, or the pieces of each journal (`epoch_alignment.Alignment`)."""

    single: Mapping[str, int]
    pieces: Mapping[str, Mapping[Origin, Sequence[Piece]]]

    @classmethod
    def of(cls, epochs: Iterable[tuple[str, int]], pieces: Iterable[tuple[str, Piece]]) -> Placement:
        """From the epochs and the pieces of all sources."""
        numbers: dict[str, list[int]] = {}
        for src, number in epochs:
            numbers.setdefault(src, []).append(number)
        divided: dict[str, dict[Origin, list[Piece]]] = {}
        for src, piece in pieces:
            origin = Origin(piece.host, piece.journal_id)
            divided.setdefault(src, {}).setdefault(origin, []).append(piece)
        return cls({src: its[0] for src, its in numbers.items() if len(its) == 1}, divided)

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
        """The epoch of each row, NOWHERE where no piece has it; ``src`` and ``origin`` are places in the names."""
        found: Numbers = np.array([self.single.get(name, NOWHERE) for name in names], np.int64)[src]
        divided = np.flatnonzero(np.array([name in self.pieces for name in names], bool)[src])
        if not len(divided):
            return found
        groups = grouped(src[divided], origin[divided])
        for each in groups.slices():
            some = divided[each]
            pieces = self.pieces[names[src[some[0]]]].get(origins[origin[some[0]]], ())
            number, at, key = rec_no[some], ts[some], seq_key[some]
            numbers = found[some]
            for piece in pieces:
                inside = (numbers == NOWHERE) & (piece.from_rec <= number) & (number <= piece.to_rec)
                inside &= (piece.from_ts <= at) & (at <= piece.to_ts) & (piece.lo_key <= key) & (key <= piece.hi_key)
                numbers[inside] = piece.epoch
            found[some] = numbers
        return found
