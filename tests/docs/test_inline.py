"""Commands that documents name in the running text, or in blocks that are run elsewhere, exist."""

from __future__ import annotations

import pytest

from tests.docs.follow import documents
from tests.docs.lookup import named, wrong


def test_commands_that_are_named_exist() -> None:
    found = [one for document in documents() for one in named(document)]
    assert found
    assert [f"{one.document}:{one.line}: {said}" for one in found if (said := wrong(one.text))] == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("bccn frobnicate", "frobnicate"),
        ("bccn pipeline build x --out y --loud", "--loud"),
        ("make tea", "tea"),
        ("systemctl stop 'bccnx*' 'bccnd-x*'", "bccnd-x*"),
        ("journalctl -u bccnd BCCND_EVENT=tea", "tea"),
        ("python -m tests.tea", "tests.tea"),
        ("python -m tests.bench.scale --tea", "--tea"),
        ("pytest tests/tea.py", "tests/tea.py"),
        ("bccn COMMAND --help", ""),
        ("systemctl stop 'bccnd*'", ""),
        ("python -m tests.bench.scale --axes x", ""),
    ],
)
def test_what_is_missing_is_found_and_nothing_else(text: str, missing: str) -> None:
    said = wrong(text)
    assert missing in said
    assert bool(said) == bool(missing)
