"""The account of a load: whatever can go wrong with a message is found. Boots no host."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

import pytest

from tests.systemd.load import faults, lacking

_HEARD: Final[dict[str, Any]] = {"last": 100, "count": 100, "doubled": 0, "disordered": 0, "missing": []}
_WELL: Final[dict[str, Any]] = {
    **dict.fromkeys(("batch", "slow", "ended"), False),
    **dict.fromkeys(("told", "unannounced", "refused", "strange"), 0),
    "error": "",
    "first_refused": "",
    "publishers": {"0": _HEARD},
}
_LESS: Final = {"count": 90, "missing": [[11, 20]]}


def of(heard: dict[str, Any], **changes: Any) -> list[str]:
    """What is found where a connection's report differs in this from one with which all is well."""
    one = deepcopy({**_WELL, **changes})
    one["publishers"]["0"].update(heard)
    return faults({"connections": [deepcopy(_WELL), one]}, {0: 100})


@pytest.mark.parametrize(
    ("heard", "changes"),
    [
        ({}, {"ended": True}),
        ({}, {"refused": 1}),
        ({}, {"strange": 1}),
        ({}, {"unannounced": 1, "slow": True}),
        ({}, {"publishers": {"0": _HEARD, "7": _HEARD}}),
        (_LESS, {}),
        (_LESS, {"told": 10}),
        (_LESS, {"told": 11, "slow": True}),
        ({"last": 99, "count": 99}, {}),
        ({"last": 101, "count": 101}, {}),
        ({"doubled": 1}, {}),
        ({"disordered": 1}, {}),
    ],
)
def test_what_is_wrong_with_one_connection_is_found(heard: dict[str, Any], changes: dict[str, Any]) -> None:
    # Who is slow and was told of it has no reason to complain.
    assert of({}) == of(_LESS, told=10, slow=True) == []
    found = of(heard, **changes)
    assert found
    assert all(one.startswith("connection 1 ") for one in found)


def test_a_publisher_of_whom_nothing_came_is_found() -> None:
    report = {"connections": [{**_WELL, "publishers": {}}]}
    assert len(faults(report, {0: 100})) == 2
    assert lacking(report, 0, 3) == [{1, 2, 3}]
