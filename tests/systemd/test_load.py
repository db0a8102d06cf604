"""The account of a load: whatever can go wrong with a message is found. Boots no host."""

from __future__ import annotations

import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest

from tests.systemd.load import faults, lacking, numbers

_HEARD: Final[dict[str, Any]] = {"last": 100, "count": 100, "doubled": 0, "disordered": 0, "missing": []}
_WELL: Final[dict[str, Any]] = {
    "batch": False,
    "slow": False,
    "ended": False,
    "error": "",
    "packets": 100,
    "gaps": 0,
    "told": 0,
    "unannounced": 0,
    "refused": 0,
    "first_refused": "",
    "strange": 0,
    "longest_ms": 3,
    "publishers": {"0": _HEARD},
}


def of(heard: dict[str, Any] | None = None, **changes: Any) -> list[str]:
    """What is found where a connection's report differs in this from one with which all is well."""
    one = deepcopy({**_WELL, **changes})
    one["publishers"]["0"].update(heard or {})
    return faults({"connections": [deepcopy(_WELL), one]}, {0: 100})


def test_nothing_is_found_where_all_is_well() -> None:
    assert of() == []
    # Who is slow and was told of it has no reason to complain.
    assert of({"count": 90, "missing": [[11, 20]]}, slow=True, told=10, gaps=1) == []


@pytest.mark.parametrize(
    ("heard", "changes", "says"),
    [
        ({}, {"ended": True}, "lost its connection: end of file"),
        ({}, {"ended": True, "error": "Connection reset by peer"}, "lost its connection: Connection reset by peer"),
        ({}, {"refused": 1, "first_refused": "CMSG !/bccn/error"}, "control messages"),
        ({}, {"strange": 1}, "nobody has sent"),
        ({}, {"unannounced": 1, "slow": True}, "only after what came behind it"),
        ({"count": 90, "missing": [[11, 20]]}, {"told": 10}, "although it reads all the time"),
        ({"count": 99, "missing": [[11, 11]]}, {}, "lacks 1 messages and was told of 0"),
        ({"count": 99, "missing": [[11, 11]]}, {"slow": True, "told": 2}, "lacks 1 messages and was told of 2"),
        ({"last": 99, "count": 99}, {}, "lacks 1 messages"),
        ({"doubled": 1}, {}, "again"),
        ({"disordered": 1}, {}, "out of order"),
        ({"last": 101, "count": 101}, {}, "number 101 of publisher 0, which has sent 100"),
        ({}, {"publishers": {"0": _HEARD, "7": _HEARD}}, "heard of publishers ['7']"),
    ],
)
def test_what_is_wrong_with_one_connection_is_found(heard: dict[str, Any], changes: dict[str, Any], says: str) -> None:
    found = of(heard, **changes)
    assert any(says in one and one.startswith("connection 1 ") for one in found), found
    assert not any(one.startswith("connection 0 ") for one in found)


def test_a_publisher_of_whom_nothing_came_is_found() -> None:
    report = {"connections": [{**_WELL, "publishers": {}}]}
    assert any("heard nothing of publisher 0" in one for one in faults(report, {0: 100}))
    assert lacking(report, 0, 3) == [{1, 2, 3}]
    assert numbers([[1, 2], [5, 5]]) == {1, 2, 5}


def test_programs_refuse_what_they_do_not_understand(programs: Path) -> None:
    for words in (["witness", "-n", "0"], ["speaker"], ["hub", "nowhere"], ["speaker", "-r", "x"]):
        done = subprocess.run([str(programs / words[0]), *words[1:]], capture_output=True, check=False, timeout=10)
        assert done.returncode == 2, words
        assert done.stderr
