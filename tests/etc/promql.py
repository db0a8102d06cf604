"""What a PromQL expression names: metrics with their matchers, and the labels by which it groups and joins."""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

_COMMENT: Final = re.compile(r"#[^\n]*")
_LISTS: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)", re.IGNORECASE)
_NAMES: Final = re.compile(
    r"""(?P<skipped>"(?:[^"\\]|\\.)*"|\d[\w.]*)
      | (?P<nameless>\{)
      | (?P<name>[A-Za-z_][\w:]*)\s*(?:(?P<call>\()|\{(?P<inner>[^{}]*)\})?""",
    re.VERBOSE,
)
_MATCHER: Final = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*")\s*(?:,\s*|$)')
#: words of the language that may stand alone
_WORDS: Final = {"and", "or", "unless", "bool", "offset", "inf", "nan", "group_left", "group_right"}


class Matcher(NamedTuple):
    label: str
    sign: str
    value: str

    def fits(self, value: str) -> bool:
        """Whether a label of this value is let through."""
        equal = value == self.value if "~" not in self.sign else bool(re.fullmatch(self.value, value))
        return equal != self.sign.startswith("!")


class Selector(NamedTuple):
    metric: str
    matchers: tuple[Matcher, ...] = ()

    def __str__(self) -> str:
        inner = ",".join(f"{label}{sign}{json.dumps(value)}" for label, sign, value in self.matchers)
        return f"{self.metric}{{{inner}}}"


class Named(NamedTuple):
    selectors: set[Selector]
    #: labels that are grouped by or joined on
    labels: set[str]


def named(expression: str) -> Named:
    """What an expression names."""
    text = _COMMENT.sub("", expression)
    labels = {label for inner in _LISTS.findall(text) for label in re.findall(r"\w+", inner)}
    selectors = set()
    for found in _NAMES.finditer(_LISTS.sub("", text)):
        assert not found["nameless"], f"a selector without a name in {expression!r}"
        if found["name"] and not found["call"] and found["name"].lower() not in _WORDS:
            inner = (found["inner"] or "").strip()
            matchers = _MATCHER.findall(inner)
            assert not _MATCHER.sub("", inner), f"cannot read {inner!r} in {expression!r}"
            selectors.add(Selector(found["name"], tuple(Matcher(a, sign, json.loads(b)) for a, sign, b in matchers)))
    return Named(selectors, labels)
