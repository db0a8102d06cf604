"""JSON from elsewhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.formats.strict_json import nested_deeper, parse_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_reads_all_json(value: object) -> None:
    assert parse_json(json.dumps(value)) == value
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "text",
    ["", "NaN", "[Infinity]", "-Infinity", "1e999", "[-1e999]", "9" * 5000, "[" * 100_000, "[" * 90_000 + "]" * 90_000],
)
def test_anything_else_is_refused_in_one_way(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)
    with pytest.raises(ValueError, match=r"."):
        parse_json(b"\xff" + text.encode())


def test_counts_the_levels_of_lists_and_objects() -> None:
    value: object = 1
    for levels in range(5):
        assert [nested_deeper(value, most) for most in range(5)] == [levels > most for most in range(5)]
        value = {"a": value, "b": [1]} if levels % 2 else [value, 2]
