"""The reader of manual pages: it leaves nothing out, and what it does not know it refuses."""

from __future__ import annotations

import re

import pytest

from docs import manual, reference


@pytest.mark.parametrize("page", [".Sh A\n.Sy x", ".Sh A\n\\*(xy", ".Sh A\n.Bd -literal\nx"])
def test_what_it_does_not_know_is_refused_and_never_left_out(page: str) -> None:
    with pytest.raises(ValueError):
        manual.sections(page)


def test_every_word_of_the_page_of_the_configuration_is_kept() -> None:
    text = reference.MANUAL.read_text()
    reported = " ".join(
        f"{part.name} {part.default or ''} {' '.join(part.paragraphs)}"
        for section in manual.sections(text)
        for part in section.parts
    )
    words = {word for line in text.splitlines() if not line.startswith(".") for word in re.findall(r"[a-z]{3,}", line)}
    assert {word for word in words if word not in reported} == set()
