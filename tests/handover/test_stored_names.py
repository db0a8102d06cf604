"""Names of stored descriptors, which daemons of all versions share."""

from __future__ import annotations

import pytest

from bccnd.handover.stored_names import CLIENT, INFLIGHT, MEMORY, SOURCES, is_stored, split_number


@pytest.mark.parametrize(
    ("name", "kind", "number", "stored"),
    [
        ("client-12", CLIENT, 12, True),
        ("sources-3", SOURCES, 3, True),
        ("ledger", INFLIGHT, 0, True),
        ("memory", MEMORY, 0, False),
        ("client-", "", 0, False),
        ("bccnd.socket", "", 0, False),
    ],
)
def test_a_name_has_a_kind_and_a_number(name: str, kind: str, number: int, stored: bool) -> None:
    assert split_number(name) == (kind, number)
    assert is_stored(name) is stored
