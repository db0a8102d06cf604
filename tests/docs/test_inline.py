"""Commands that documents name in the running text, or in blocks that are run elsewhere, exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.docs.blocks import BadDocument
from tests.docs.follow import documents
from tests.docs.lookup import named, not_accounted_for, wrong
from tests.support import ROOT


def quoted_in_messages() -> Iterator[tuple[str, str]]:
    """Commands in quotes, in the texts of the package, and where they are."""
    for path in sorted((ROOT / "bccnd").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for command in re.findall(r"'((?:bccnd?|systemctl|journalctl) [^'\n]+)'", node.value):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", command


def test_commands_that_messages_of_the_package_name_exist() -> None:
    found = list(quoted_in_messages())
    assert found
    assert [f"{where}: {output}" for where, command in found if (output := wrong(command))] == []


def test_commands_that_are_named_exist() -> None:
    found = [one for document in documents() for one in named(document)]
    assert found
    assert [f"{one.document}:{one.line}: {output}" for one in found if (output := wrong(one.text))] == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("bccn frobnicate", "frobnicate"),
        ("bccn pipeline build x --out y --loud", "--loud"),
        ("make tea", "tea"),
        ("systemctl stop 'bccnx*' 'bccnd-x*'", "bccnd-x*"),
        ("journalctl -u bccnd BCCND_EVENT=tea", "tea"),
        ("python -m tests.tea", "tests.tea"),
        ("python -m tools.bench.scale --tea", "--tea"),
        ("pytest tests/tea.py", "tests/tea.py"),
        ("bccn COMMAND --help", ""),
        ("systemctl stop 'bccnd*'", ""),
        ("python -m tools.bench.scale --axes x", ""),
    ],
)
def test_what_is_missing_is_found_and_nothing_else(text: str, missing: str) -> None:
    output = wrong(text)
    assert missing in output
    assert bool(output) == bool(missing)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("```go\npackage main\n```\n", "no test runs this go"),
        ("```none\nmake tea\n```\n", "no test sees them"),
        ("```sh\nmake tea\n```\n", ""),
        ("```none\na picture\n```\n", ""),
    ],
)
def test_a_program_that_nothing_runs_is_found(text: str, missing: str) -> None:
    found = [output for _, output in not_accounted_for("docs/none.md", text)]
    assert len(found) == bool(missing)
    assert all(missing in output for output in found)


def test_what_is_not_run_has_to_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = {"docs/none.md": [{"block": "make tea", "not run": "no kettle"}]}
    monkeypatch.setattr("tests.docs.blocks.all_marks", lambda: marks)
    block = "```sh\nmake tea\n```\n"
    ((_, output),) = not_accounted_for("docs/none.md", f"Not tested:\n\n# A heading\n\nDo:\n\n{block}")
    assert "the text before does not say" in output
    assert list(not_accounted_for("docs/none.md", f"An example, not\ntested:\n\n{block}")) == []
    with pytest.raises(BadDocument, match="make tea"):
        list(not_accounted_for("docs/none.md", "No block.\n"))
    with pytest.raises(BadDocument, match="a comment"):
        list(not_accounted_for("docs/none.md", f"<!-- not run -->\n{block}"))
