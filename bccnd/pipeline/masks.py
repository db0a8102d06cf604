"""Sets of hosts as bit masks: columns of `WORD` bits each, as many as it takes.

Law: a mask is a list of columns, the first for bits 0 to 62, and so on; its columns are called after it, ``seen``,
``seen_1``, ... in frames and ``seen_by``, ``seen_by_1``, ... in tables alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from bccnd.pipeline.schema import WORD


def words_for(hosts: int) -> int:
    """The columns that a mask of so many hosts takes."""
    return max(1, -(-hosts // WORD))


def names(mask: str, words: int) -> list[str]:
    """What the columns of a mask are called."""
    return [mask, *[f"{mask}_{word}" for word in range(1, words)]]


def of_bits(bits: Iterable[int], words: int) -> list[int]:
    """The words of a set of bits."""
    found = [0] * words
    for bit in bits:
        found[bit // WORD] |= 1 << bit % WORD
    return found


def bits_of(mask: Sequence[int]) -> list[int]:
    """The bits that are set."""
    return [word * WORD + bit for word, each in enumerate(mask) for bit in range(WORD) if each >> bit & 1]


def single(bit: str, word: int) -> Column:
    """The part in a word of the mask in which only the bit in a column is set."""
    inside = F.col(bit).between(word * WORD, word * WORD + WORD - 1)
    return F.when(inside, F.expr(f"shiftleft(1L, {bit} - {word * WORD})")).otherwise(F.lit(0).cast("bigint"))


def has(mask: str, bit: str, words: int) -> Column:
    """Whether a mask has the bit in a column."""
    found = F.lit(False)
    for word, name in enumerate(names(mask, words)):
        inside = F.col(bit).between(word * WORD, word * WORD + WORD - 1)
        found = found | (inside & (F.expr(f"shiftright({name}, {bit} - {word * WORD})").bitwiseAND(1) == 1))
    return found


def moved(mask: str, places: Mapping[int, int], before: int, words: int) -> list[Column]:
    """A mask of ``before`` words whose bits go to other places, in the same order; bits without a place are dropped."""
    ranges = _ranges(places)
    columns = names(mask, before)
    found = []
    for word in range(words):
        column = F.lit(0).cast("bigint")
        for source, target, length in ranges:
            if target // WORD != word:
                continue
            part = F.shiftrightunsigned(F.col(columns[source // WORD]), source % WORD)
            part = part.bitwiseAND(F.lit((1 << length) - 1).cast("bigint"))
            column = column.bitwiseOR(F.shiftleft(part, target % WORD))
        found.append(column)
    return found


def _ranges(places: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Bits that move together: the first of them, where it goes, how many they are. None crosses the end of a word."""
    found: list[tuple[int, int, int]] = []
    for source, target in sorted(places.items()):
        if found and source % WORD and target % WORD:
            first, its_target, length = found[-1]
            if (first + length, its_target + length) == (source, target):
                found[-1] = (first, its_target, length + 1)
                continue
        found.append((source, target, 1))
    return found


def chosen(cases: Sequence[tuple[Collection[str], Sequence[Column]]], day: str, words: int) -> list[Column]:
    """For each word the column of the case that a row's day is in."""
    if len(cases) == 1:
        return list(cases[0][1])
    found = []
    for word in range(words):
        column = F.when(F.col(day).isin(*cases[0][0]), cases[0][1][word])
        for days, columns in cases[1:]:
            column = column.when(F.col(day).isin(*days), columns[word])
        found.append(column)
    return found
