"""Compiles subscription patterns of four dialects into steps over the tokens of a key.

The empty pattern matches every key, in every dialect. Source: sbus, "Routing keys"; BCCN, "Subscription patterns"; the
broker, "Topic Matching and Wildcard Support".

========  =========  =====================================  ==================  ==================  =========
dialect   separator  ``*``                                  trailing separator  last token ``>``    ``+``
========  =========  =====================================  ==================  ==================  =========
path      /          any bytes up to the next separator     all below           one or more tokens  literal
sbus      /          the same                               all below           literal             literal
sbus-dot  .          the same                               all below           literal             literal
broker    /          as a whole token: any number of them   literal             literal             one token
========  =========  =====================================  ==================  ==================  =========
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: kinds of steps: an equal token, a token with this prefix, or any number of tokens
EXACT: Final = 0
PREFIX: Final = 1
MANY: Final = 2
#: most levels of a client's pattern
MAX_LEVELS: Final = 64
#: bytes of a pattern
MAX_PATTERN: Final = 1024

Step = tuple[int, bytes]

_ANY_ONE: Final[Step] = (PREFIX, b"")
_ANY_NUMBER: Final[Step] = (MANY, b"")


@dataclass(frozen=True)
class Dialect:
    """The rules of one dialect."""

    name: str
    separator: bytes
    tail: bytes
    levels: bool

    def tokens(self, key: bytes) -> list[bytes]:
        return key.split(self.separator)

    def levels_of(self, text: bytes) -> int:
        """Return the number of tokens of a key or pattern."""
        return text.count(self.separator) + 1


DIALECTS: Final = {
    dialect.name: dialect
    for dialect in (
        Dialect("path", b"/", tail=b">", levels=False),
        Dialect("sbus", b"/", tail=b"", levels=False),
        Dialect("sbus-dot", b".", tail=b"", levels=False),
        Dialect("broker", b"/", tail=b"", levels=True),
    )
}


@dataclass(frozen=True)
class Pattern:
    """A compiled pattern: its steps, then with ``rest`` one or more tokens of any kind.

    ``literal`` patterns match only themselves. A pattern that can match nothing (``a*b``: ``*`` takes all up to the
    separator) has ``steps`` None.
    """

    steps: tuple[Step, ...] | None
    rest: bool
    literal: bool


def compile_pattern(text: bytes, dialect: Dialect) -> Pattern:
    """Compile a pattern; every byte string is valid."""
    if not text:
        return Pattern((), rest=True, literal=False)
    tokens = dialect.tokens(text)
    if dialect.levels:
        return _compile_levels(tokens)
    rest = tokens[-1] in (b"", dialect.tail)
    steps: list[Step] = []
    for token in tokens[:-1] if rest else tokens:
        head, star, behind = token.partition(b"*")
        if star and behind.strip(b"*"):
            return Pattern(None, rest=False, literal=False)
        steps.append((PREFIX if star else EXACT, head))
    return Pattern(tuple(steps), rest, literal=not rest and all(kind == EXACT for kind, _ in steps))


def _compile_levels(tokens: list[bytes]) -> Pattern:
    """Normalize runs of wildcards: each ``+`` first, then one ``*``, so that ``*/+/*`` becomes ``+/*``."""
    steps: list[Step] = []
    many = False
    for token in tokens:
        if token == b"*":
            many = True
        elif token == b"+":
            steps.append(_ANY_ONE)
        else:
            steps += [_ANY_NUMBER] * many
            steps.append((EXACT, token))
            many = False
    steps += [_ANY_NUMBER] * many
    return Pattern(tuple(steps), rest=False, literal=all(kind == EXACT for kind, _ in steps))


def covers(wide: Pattern, narrow: Pattern) -> bool:
    """Whether every key that ``narrow`` matches is also matched by ``wide``; both split keys at the same separator.

    May be false although it is so in a few odd cases (``*/a/*`` over ``+/*/a/*``).
    """
    if narrow.steps is None:
        return True
    if wide.steps is None:
        return False
    if wide.rest and not wide.steps:  # every key has a token
        return True
    above, below = _expand_rest(wide, wide.steps), _expand_rest(narrow, narrow.steps)
    # reach[j]: the rest of ``above`` covers ``below[j:]``
    reach = [False] * len(below) + [True]
    for kind, token in reversed(above):
        behind, reach = reach, [False] * (len(below) + 1)
        for j in range(len(below), -1, -1):
            if kind == MANY:
                reach[j] = behind[j] or (j < len(below) and reach[j + 1])
            elif j < len(below):
                reach[j] = behind[j + 1] and _step_covers(kind, token, *below[j])
    return reach[0]


def _expand_rest(pattern: Pattern, steps: tuple[Step, ...]) -> list[Step]:
    """Express ``rest`` as steps: one token, then any number."""
    return [*steps, *([_ANY_ONE, _ANY_NUMBER] if pattern.rest else [])]


def _step_covers(kind: int, token: bytes, other: int, narrower: bytes) -> bool:
    if kind == EXACT:
        return other == EXACT and token == narrower
    return other != MANY and narrower.startswith(token)
