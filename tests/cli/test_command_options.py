"""Options and arguments of all commands: numbers in range, JSON with safe numbers, files that are completed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bccnd.cli import bccnd_main, main, sbusd
from bccnd.cli.shared.completion import JoiningBashComplete
from bccnd.cli.shared.parameter_types import Duration, Moment, SegmentAddress, Whole

#: types of options that stand for numbers, and what an option is called in the help that reads them itself
NUMBERS = (Duration, Moment, Whole, SegmentAddress)
METAVARS = ("TIME", "SPEED", "SIZE", "N", "DAY,...")
EXTREMES = (
    *("inf", "-inf", "nan", "Infinity", "-1", "-1s", "1e308", "1e999", "1e308s", "", " 5", "5 ", "1_000", "0x10"),
    *("9" * 23, "9" * 5000, f"{'9' * 23}d", f"{'9' * 400}d", f"1{'0' * 23}ms", "9" * 23 + "g"),
    *("\u0663", "\u0663s", "\u00b2", "\uff15", "\u0662\u0660\u0662\u0666-\u0661\u0661-\u0662\u0661", "infs", "nand"),
)


def each_command(command: click.Command, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield a command and all that are below it, with the words that call them."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from each_command(inner, *words, name)


ALL = [(program, *found) for program in (main.main, bccnd_main.main, sbusd.main) for found in each_command(program)]
NUMERIC = [
    pytest.param(program, words, command, param, id=" ".join((*words, param.opts[0])))
    for program, words, command in ALL
    for param in command.params
    if isinstance(param.type, NUMBERS) or param.metavar in METAVARS
]


def test_no_option_parses_numbers_by_itself() -> None:
    known = (*NUMBERS, click.Choice, click.Path, click.File, click.types.StringParamType, click.types.BoolParamType)
    params = [(words, param) for _, words, command in ALL for param in command.params]
    assert [(words, param.opts[0]) for words, param in params if not isinstance(param.type, known)] == []
    assert len(NUMERIC) > 30


@pytest.mark.parametrize(("program", "words", "command", "option"), NUMERIC)
def test_an_extreme_value_is_bad_usage(
    program: click.Command, words: tuple[str, ...], command: click.Command, option: click.Parameter, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    runner = CliRunner(env={"BCCN_SOCKET": str(tmp_path / "nowhere")})
    required = ["x" for one in command.params if isinstance(one, click.Argument) and one.required]
    for value in EXTREMES:
        if not value and option.opts == ["--days"]:  # no days
            continue
        done = runner.invoke(program, [*words, option.opts[0], value, *required])
        assert (done.exit_code, "Traceback" in done.output) == (2, False), (value[:40], done.output, done.exception)
        assert option.name is not None
        assert any(opt.lstrip("-") in done.output for opt in (*option.opts, option.name)), (value[:40], done.output)
        assert len(done.output) < 1500, value[:40]


@pytest.mark.usefixtures("log_as_before")
@pytest.mark.parametrize("user", ["9" * 5000, str(2**32), "\u0663", "-1"])
def test_a_user_has_a_number_of_32_bits(user: str) -> None:
    assert CliRunner().invoke(sbusd.main, ["-f", "-u", user, "-a", "/nowhere/bus.sock"]).exit_code == 2


def test_every_command_with_json_takes_safe_numbers() -> None:
    for _, words, command in ALL:
        names = {name for param in command.params for name in param.opts}
        assert ("--json" in names) == ("--safe-numbers" in names), words


def test_completion_offers_files_for_whatever_takes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key.pub").touch()
    takes_file = re.compile(r"FILE|DIR|PATH|JOURNAL|TABLES|CAPTURE")
    seen = 0
    for words, command in each_command(main.main):
        context = click.Context(command, info_name="bccn")
        for param in command.params:
            if takes_file.search(f"{param.metavar or ''} {param.make_metavar(context)}"):
                seen += 1
                incomplete = "relay/=" if "=" in (param.metavar or "") else ""
                found = param.shell_complete(context, incomplete)
                assert any(one.type == "file" or one.value == "relay/=key.pub" for one in found), (words, param.name)
    assert seen > 30


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("bccn direct sub --signer relay = ke", ["file,"]),
        ("bccn direct sub --signer relay = keys/", ["file,"]),
        ("bccn direct sub --signer relay = nothing", []),
        ("bccn --socket = ke", ["file,ke"]),
        ("bccn direct sub --sig", ["plain,--signer"]),
    ],
)
def test_bash_completes_the_file_of_a_signer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, wanted: list[str]
) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/relay.pub").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    complete = JoiningBashComplete(main.main, {}, "bccn", "_BCCN_COMPLETE")
    args, incomplete = complete.get_completion_args()
    assert [complete.format_completion(one) for one in complete.get_completions(args, incomplete)] == wanted
