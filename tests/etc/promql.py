"""What a PromQL expression names: metrics with their matchers, and the labels by which it groups and joins.

Law: this reads what promtool has accepted already, so it need not find faults; what it does not know is an error here,
never passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<number>\d[\w.]*)
      | (?P<name>[A-Za-z_][\w:]*)
      | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^(){}\[\],=<>:@])""",
    re.VERBOSE,
)
#: words that stand before a list of labels
_LISTS: Final = {"by", "without", "on", "ignoring", "group_left", "group_right"}
#: words of the language that stand alone
_WORDS: Final = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
_AGGREGATIONS: Final = {
    *("sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values", "bottomk", "topk", "quantile"),
}
_MATCHES: Final = {"=", "!=", "=~", "!~"}


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


class _Tokens:
    def __init__(self, text: str) -> None:
        self._all = list(_tokens(text))
        self._at = 0

    def peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._all[at][1] if at < len(self._all) else ""

    def take(self, *wanted: str) -> tuple[str, str]:
        kind, text = self._all[self._at] if self._at < len(self._all) else ("end", "")
        assert not wanted or text in wanted or kind in wanted, f"{text!r} stands where one of {wanted} should"
        self._at += 1
        return kind, text


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found is not None, f"cannot read {text[at : at + 20]!r} of {text!r}"
        at = found.end()
        if found.lastgroup != "space":
            yield str(found.lastgroup), found[0]


def named(expression: str) -> Named:
    """What an expression names."""
    tokens = _Tokens(expression)
    found = Named(set(), set())
    while True:
        kind, text = tokens.take()
        if kind == "end":
            return found
        assert text != "{", f"a selector without a name in {expression!r}"
        if kind != "name" or text.lower() in _WORDS:
            continue
        if text.lower() in _LISTS and tokens.peek() == "(":
            found.labels.update(_labels(tokens))
        elif tokens.peek() == "(" or (text in _AGGREGATIONS and tokens.peek() in _LISTS):
            continue
        elif text.lower() not in _LISTS:
            found.selectors.add(Selector(text, tuple(_matchers(tokens))))


def _labels(tokens: _Tokens) -> Iterator[str]:
    tokens.take("(")
    while tokens.peek() != ")":
        yield tokens.take("name")[1]
        if tokens.peek() == ",":
            tokens.take()
    tokens.take(")")


def _matchers(tokens: _Tokens) -> Iterator[Matcher]:
    if tokens.peek() != "{":
        return
    tokens.take("{")
    while tokens.peek() != "}":
        _, label = tokens.take("name")
        _, sign = tokens.take(*_MATCHES)
        _, value = tokens.take("string")
        yield Matcher(label, sign, _unquoted(value))
        if tokens.peek() == ",":
            tokens.take()
    tokens.take("}")


def _unquoted(text: str) -> str:
    """A string without its quotes; single quotes are read as double ones."""
    inner = text[1:-1] if text[0] == '"' else text[1:-1].replace("\\'", "'").replace('"', '\\"')
    return str(json.loads(f'"{inner}"'))
