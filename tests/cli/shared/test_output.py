"""What commands share: text from elsewhere, refusals, colours."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.cli.shared.connection import explain
from bccnd.cli.shared.output import cell_width, cut, payload_fields, visible, visible_bytes, wants_colour
from bccnd.client.event_queues import Refusal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("demo/x", "demo/x"),
        ("Grüße, 世界", "Grüße, 世界"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("a\nb\tc\0", "a\\nb\\tc\\x00"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp", "\\u202egnp"),
        ("\udcff", "\\udcff"),
        ("\N{NO-BREAK SPACE}|\u2028", "\\xa0|\\u2028"),
    ],
)
def test_control_characters_of_others_are_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.binary())
def test_no_bytes_become_orders_to_a_terminal(data: bytes) -> None:
    assert visible_bytes(data).isprintable()


@given(st.text(st.characters(codec="utf-8")).map(visible), st.integers(0, 20))
def test_what_is_cut_is_the_longest_beginning_that_fits(text: str, width: int) -> None:
    short = cut(text, width)
    assert text.startswith(short)
    assert cell_width(short) <= width
    rest = text[len(short) :]
    assert not rest or cell_width(short + rest[0]) > width


def test_wide_characters_take_two_cells_and_marks_none() -> None:
    assert (cell_width("世界"), cell_width("e\u0301"), cut("世界", 3)) == (4, 1, "世")
    assert payload_fields(b"a\x1b") == {"payload": "a\x1b"}
    assert payload_fields(b"\xff") == {"payload_base64": "/w=="}


def test_a_refusal_says_what_it_is_about_and_what_helps() -> None:
    for reason, about, parts in (
        ("too_many_subscriptions", "x/", ("'x/'", "bus.max_sub", "bus.user.subscriptions")),
        ("not_permitted", "x", ("'x'", "access")),
        ("bad_tag", "a b", ("'a b'",)),
        ("brand_new", "\x1b[m", ("'\\x1b[m'", "brand_new")),
    ):
        assert all(part in explain(Refusal(reason, about)) for part in parts), reason
    for reason in ("not_permitted", "not_admitted", "too_many_clients", "too_many_clients_of_user"):
        assert not explain(Refusal(reason, "")).startswith("'")
        assert "(" in explain(Refusal(reason, ""))


@pytest.mark.parametrize(
    ("choice", "terminal", "no_color", "term", "wanted"),
    [
        ("auto", True, None, "xterm", True),
        ("auto", True, "", "xterm", True),
        ("auto", True, "1", "xterm", False),
        ("auto", True, None, "dumb", False),
        ("auto", False, None, "xterm", False),
        ("always", False, "1", "dumb", True),
        ("never", True, None, "xterm", False),
    ],
)
def test_colours_are_for_terminals_unless_set_otherwise(
    monkeypatch: pytest.MonkeyPatch, choice: str, terminal: bool, no_color: str | None, term: str, wanted: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color is not None:
        monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert wants_colour(choice) is wanted
