"""The reader of manual pages: it leaves nothing out, and what it does not know it refuses."""

from __future__ import annotations

import re

import pytest

from docs import manual, reference

PAGE = r"""
.Dd today
.Sh DESCRIPTION
A file in YAML,
with
.Cm key
in
.Pa /etc/x ,
and a * and [more].
.Pp
See
.Xr bccn 1 .
.Ss The bus
Before.
.Bl -tag -width Ds
.It Cm bus.path Pq \(dq@x\(dq
At
.Pa /dev/fd/ Ns Ar N
or
.Pq Ql a b .
.Pp
Again.
.It Cm a.b , a.c
With
.Fl -check .
.El
Behind.
.Bd -literal -offset indent
a: [1, \(dqx\(dq]
.Ed
"""


def test_a_page_is_read_in_its_order_with_its_entries() -> None:
    description, bus = manual.sections(PAGE.lstrip())
    assert description.title == "Description"
    assert description.parts[0].paragraphs == [
        r"A file in YAML, with `key` in `/etc/x`, and a \* and \[more\].",
        "See bccn(1).",
    ]
    assert bus.title == "The bus"
    before, path, both, behind = bus.parts
    assert before.paragraphs == ["Before."]
    assert (path.name, path.default) == ("bus.path", '"@x"')
    assert path.paragraphs == ["At `/dev/fd/N` or (`a b`).", "Again."]
    assert (both.name, both.default, both.paragraphs) == ("a.b , a.c", None, ["With `--check`."])
    assert behind.paragraphs == ["Behind.", '```yaml\na: [1, "x"]\n```']


@pytest.mark.parametrize("page", [".Sh A\n.Sy x", ".Sh A\n\\*(xy", ".Sh A\n.Bd -literal\nx"])
def test_what_it_does_not_know_is_refused_and_never_left_out(page: str) -> None:
    with pytest.raises(ValueError):
        manual.sections(page)


def test_every_word_of_the_page_of_the_configuration_is_kept() -> None:
    text = reference.MANUAL.read_text()
    told = " ".join(
        f"{part.name} {part.default or ''} {' '.join(part.paragraphs)}"
        for section in manual.sections(text)
        for part in section.parts
    )
    words = {word for line in text.splitlines() if not line.startswith(".") for word in re.findall(r"[a-z]{3,}", line)}
    assert {word for word in words if word not in told} == set()
