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

#: kinds of steps: an equal token, or any number of tokens; that of a token with a prefix is the length of the prefix
EXACT: Final = -1
MANY: Final = -2
#: most levels of a client's pattern
MAX_LEVELS: Final = 64
#: bytes of a pattern
MAX_PATTERN: Final = 1024

Step = tuple[int, bytes]

_ANY_ONE: Final[Step] = (0, b"")
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
    """A compiled pattern: its steps, behind which a key ``ends``, or one or more tokens of any kind are its ``rests``.

    ``literal`` patterns match only themselves. A pattern that can match nothing (``a*b``: ``*`` takes all up to the
    separator) has ``steps`` None.
    """

    separator: bytes
    steps: tuple[Step, ...] | None
    ends: bool
    rests: bool
    literal: bool


def compile_pattern(text: bytes, dialect: Dialect) -> Pattern:
    """Compile a pattern; every byte string is valid."""
    if not text:
        return Pattern(dialect.separator, (), ends=False, rests=True, literal=False)
    tokens = dialect.tokens(text)
    if dialect.levels:
        return _compile_levels(tokens, dialect)
    rests = tokens[-1] in (b"", dialect.tail)
    steps: list[Step] = []
    for token in tokens[:-1] if rests else tokens:
        head, star, behind = token.partition(b"*")
        if star and behind.strip(b"*"):
            return Pattern(dialect.separator, None, ends=False, rests=False, literal=False)
        steps.append((len(head) if star else EXACT, head))
    return _pattern(dialect, steps, ends=not rests, rests=rests)


def _pattern(dialect: Dialect, steps: list[Step], *, ends: bool, rests: bool) -> Pattern:
    literal = not rests and all(kind == EXACT for kind, _ in steps)
    return Pattern(dialect.separator, tuple(steps), ends, rests, literal)


def _compile_levels(tokens: list[bytes], dialect: Dialect) -> Pattern:
    """Normalize runs of wildcards: each ``+`` first, then one ``*``, so that ``*/+/*`` becomes ``+/*``. A ``*`` at the
    end is no step: the key may end there, or go on."""
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
    return _pattern(dialect, steps, ends=True, rests=many)


def covers(wide: Pattern, narrow: Pattern) -> bool:
    """Whether every key that ``narrow`` matches is also matched by ``wide``; both split keys at the same separator.

    May be false although it is so in a few odd cases (``*/a/*`` over ``+/*/a/*``).
    """
    if narrow.steps is None:
        return True
    if wide.steps is None:
        return False
    if wide.rests and not wide.steps:  # every key has a token
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
    """Express ``rests`` as steps: one token unless the key may end before it, then any number."""
    rest = [_ANY_NUMBER] if pattern.ends else [_ANY_ONE, _ANY_NUMBER]
    return [*steps, *(rest if pattern.rests else [])]


def _step_covers(kind: int, token: bytes, other: int, narrower: bytes) -> bool:
    if kind == EXACT:
        return other == EXACT and token == narrower
    return other != MANY and narrower.startswith(token)
