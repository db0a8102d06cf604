"""Long work in steps: a generator that pauses between them, so that its caller can do other work meanwhile."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

#: yields where it may pause, and returns its result
Steps = Generator[None, None, T]
#: items of a list that are worked on between two pauses
_CHUNK: Final = 2000


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in portions, between which a step may pause."""
    return (items[first : first + _CHUNK] for first in range(0, len(items), _CHUNK))


def complete(steps: Steps[T]) -> T:
    """Do all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
