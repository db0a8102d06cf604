"""Mutants are legal Python, each with one fault, and known by a name that does not depend on lines above."""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.support import ROOT
from tools.mutation.mutants import mutants

SOURCE = """
LIMIT: int = 3

def largest(numbers: list[int]) -> int:
    best = 0
    for number in numbers:
        if number > best and not number == LIMIT:
            best = number
    return best + 1
"""


def changes(source: str) -> set[str]:
    return {one.after for one in mutants(source)}


def test_conditions_numbers_and_results_are_put_wrong() -> None:
    assert changes(SOURCE) >= {
        "best = (1)",
        "if (False):",
        "if (True):",
        "if (number > best or not number == LIMIT):",
        "if (number >= best) and not number == LIMIT:",
        "if number > best and (number == LIMIT):",
        "if number > best and not (number != LIMIT):",
        "return None",
        "return (best - 1)",
        "return best + (2)",
    }


def test_names_stay_when_lines_above_change() -> None:
    assert [one.name for one in mutants(SOURCE)] == [one.name for one in mutants("\n# more\n" + SOURCE)]


def test_every_mutant_of_a_module_is_legal_and_differs() -> None:
    source = (ROOT / "bccnd/core/wire/bccn1.py").read_text()
    found = list(mutants(source))
    assert len({one.text for one in found} | {source}) > 0.9 * len(found) > 50
    for one in found:
        ast.parse(one.text)
        assert one.text != source


def survivors(*tests: str) -> str:
    """Run mutants of a module with these tests and return what is printed."""
    command = [
        sys.executable,
        "-m",
        "tools.mutation",
        "bccnd/core/formats/units.py",
        "--sample",
        "4",
        "--tests",
        *tests,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_mutants_survive_only_where_no_test_reaches_them() -> None:
    assert survivors("tests/core/formats/test_units.py").startswith("4 of ")
    assert survivors("tests/core/formats/test_pem.py").count("survives: ") == 4
