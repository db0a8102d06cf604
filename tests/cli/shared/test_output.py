"""What commands share: text from elsewhere, refusals, colours, times and segments as they may be written."""

from __future__ import annotations

import subprocess
import sys
import time

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bccnd.cli.main import COMMANDS, main
from bccnd.cli.shared.connection import explain
from bccnd.cli.shared.output import cell_width, cut, payload_fields, visible, visible_bytes, wants_colour
from bccnd.cli.shared.parameter_types import Duration, Moment, SegmentAddress
from bccnd.client.event_queues import Refusal
from tests.support import ROOT


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


# -- options and commands

DAY = 1_795_219_200_000_000  # 2026-11-21, in microseconds


@pytest.mark.parametrize(
    ("param", "texts"),
    [
        (Duration(), {"0": 0.0, "10": 10.0, "1.5": 1.5, "500ms": 0.5, "2m": 120.0, "1h": 3600.0, "7d": 604_800.0}),
        (Duration(), {"1e9": 1e9, "2.5e-1": 0.25}),
        (Moment(), {"2026-11-21": DAY, "2026-11-21T01:00": DAY + 3_600_000_000, "2026-11-21T01:00+01:00": DAY}),
        (Moment(end=True), {"2026-11-20": DAY, "2026-11-21T00:00": DAY}),
        (SegmentAddress(), {"10.0.0.255": ("10.0.0.255", 5400), "10.0.0.255#7": ("10.0.0.255", 7)}),
        (SegmentAddress(), {"239.1.2.3:5500": ("239.1.2.3", 5500), "[ff02::1]:5400": ("ff02::1", 5400)}),
    ],
)
def test_one_spelling_serves_all_commands(param: click.ParamType, texts: dict[str, object]) -> None:  # type: ignore[type-arg]
    assert {text: param.convert(text, None, None) for text in texts} == texts


def test_a_time_may_be_how_long_ago_it_was() -> None:
    before = time.time()
    found = Moment().convert("15m", None, None)
    assert before * 1e6 - 1 <= found + 900e6 <= time.time() * 1e6 + 1


def test_help_and_completion_load_no_command() -> None:
    code = (
        "import sys\nfrom bccnd.cli.main import main\n"
        "main(['--help'], standalone_mode=False)\nprint(*(name for name in sys.modules if name.startswith('bccnd.c')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    *_, loaded = done.stdout.splitlines()
    parts = tuple(f"bccnd.{part}" for part in ("client", "config", "cli.messages", "cli.diagnosis", "cli.journals"))
    assert not [name for name in loaded.split() if name.startswith(parts)]
    shown = " ".join(done.stdout.split())
    assert all(f"{name} {entry.summary}" in shown for name, entry in COMMANDS.items())
    complete = ShellComplete(main, {}, "bccn", "_BCCN_COMPLETE")
    assert [one.value for one in complete.get_completions([], "ke")] == ["keys", "keygen"]
    assert [one.value for one in complete.get_completions(["tap"], "--exp")] == ["--explain"]


def test_the_socket_may_be_named_before_and_behind_a_command() -> None:
    for words in (
        ["--socket", "/nowhere/1", "clients"],
        ["--socket", "/nowhere/2", "clients", "--socket", "/nowhere/1"],
    ):
        done = CliRunner().invoke(main, words)
        assert (done.exit_code, "/nowhere/1" in done.stderr) == (4, True)
