"""Sections are read as they were written, by neighbouring versions too."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.formats.image_sections import pack_section, table, unpack_sections
from tests.core.material import examples

ROWS = st.lists(st.tuples(st.binary(max_size=300), st.integers(0, 2**64 - 1), st.floats(allow_nan=False)), max_size=20)


@given(st.lists(st.tuples(st.text(max_size=5), ROWS), max_size=4))
@examples(100)
def test_what_was_packed_is_unpacked(content: list[tuple[str, list[tuple[bytes, int, float]]]]) -> None:
    types = {"name": "s", "number": "Q", "when": "d"}
    data = b"".join(pack_section(table(kind, types, rows)) for kind, rows in content)
    read = [(one.kind, list(one.rows(name=b"", number=0, when=0.0))) for one in unpack_sections(data)]
    assert read == content
