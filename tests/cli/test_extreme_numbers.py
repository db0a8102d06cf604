"""Options that take a number, a time or a size refuse what is none, or is out of range: of all commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bccnd.cli import bccnd_main, main, sbusd
from bccnd.cli.shared.parameter_types import Duration, Moment, SegmentAddress, Whole

#: types of options that stand for numbers, and what an option is called in the help that reads them itself
NUMBERS = (Duration, Moment, Whole, SegmentAddress)
METAVARS = ("TIME", "SPEED", "SIZE", "N", "DAY,...")
EXTREMES = (
    *("inf", "-inf", "nan", "Infinity", "-1", "-1s", "1e308", "1e999", "1e308s", "", " 5", "5 ", "1_000", "0x10"),
    *("9" * 23, "9" * 5000, f"{'9' * 23}d", f"{'9' * 400}d", f"1{'0' * 23}ms", "9" * 23 + "g"),
    *("\u0663", "\u0663s", "\u00b2", "\uff15", "\u0662\u0660\u0662\u0666-\u0661\u0661-\u0662\u0661", "infs", "nand"),
)


def each_option(
    context: click.Context, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Parameter]]:
    command = context.command
    for param in command.params:
        yield words, param
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from each_option(click.Context(inner, info_name=name, parent=context), (*words, name))


ALL = [
    (command, words, param)
    for command in (main.main, bccnd_main.main, sbusd.main)
    for words, param in each_option(click.Context(command))
]
NUMERIC = [
    pytest.param(command, words, param, id=" ".join((*words, param.opts[0])))
    for command, words, param in ALL
    if isinstance(param.type, NUMBERS) or param.metavar in METAVARS
]


def test_no_option_parses_numbers_by_itself() -> None:
    known = (*NUMBERS, click.Choice, click.Path, click.File, click.types.StringParamType, click.types.BoolParamType)
    others = [(words, param.opts[0]) for _, words, param in ALL if not isinstance(param.type, known)]
    assert others == []
    assert len(NUMERIC) > 30


@pytest.mark.parametrize(("command", "words", "option"), NUMERIC)
def test_an_extreme_value_is_bad_usage(
    command: click.Command, words: tuple[str, ...], option: click.Parameter, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    runner = CliRunner(env={"BCCN_SOCKET": str(tmp_path / "nowhere")})
    for value in EXTREMES:
        if not value and option.opts == ["--days"]:  # no days
            continue
        required = ["x" for one in param_arguments(command, words) if one.required]
        done = runner.invoke(command, [*words, option.opts[0], value, *required])
        assert (done.exit_code, "Traceback" in done.output) == (2, False), (value[:40], done.output, done.exception)
        assert option.name is not None
        assert any(opt.lstrip("-") in done.output for opt in (*option.opts, option.name)), (value[:40], done.output)
        assert len(done.output) < 1500, value[:40]


def param_arguments(command: click.Command, words: tuple[str, ...]) -> Iterator[click.Argument]:
    """The arguments of a command."""
    for word in words:
        assert isinstance(command, click.Group)
        inner = command.get_command(click.Context(command), word)
        assert inner is not None
        command = inner
    yield from (one for one in command.params if isinstance(one, click.Argument))


@pytest.mark.parametrize("user", ["9" * 5000, str(2**32), "\u0663", "-1"])
def test_a_user_has_a_number_of_32_bits(user: str) -> None:
    done = CliRunner().invoke(sbusd.main, ["-f", "-u", user, "-a", "/nowhere/bus.sock"])
    assert (done.exit_code, "no such user" in done.output) == (2, True)
