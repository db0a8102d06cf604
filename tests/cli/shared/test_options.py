"""Times, durations and segments as they may be written, and commands that are loaded when they are called."""

from __future__ import annotations

import subprocess
import sys
import time

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from bccnd.cli.main import COMMANDS, main
from bccnd.cli.shared.parameter_types import Duration, Moment, SegmentAddress
from tests.support import ROOT

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
