"""docs/commands.md, made from the help of the commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

import click

from bccnd.cli.main import main

_HEAD = """# Commands

The help texts of `bccn COMMAND --help`. Every command also takes `--socket PATH`, the path of the daemon's socket,
before or after the name of the command."""

#: options that every command has
_EVERYWHERE: Final = {"--help", "--socket"}


def page() -> str:
    """The whole document."""
    return "\n\n".join([_HEAD, *_describe(click.Context(main, info_name="bccn"))]) + "\n"


def _describe(context: click.Context) -> Iterator[str]:
    """The commands of a group, each with its usage, text and options."""
    assert isinstance(context.command, click.Group)
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield f"## {inner.command_path}"
        yield f"```none\n{inner.get_usage().removeprefix('Usage: ')}\n```"
        yield from _paragraphs(inspect.cleandoc(command.help or ""))
        if isinstance(command, click.Group):
            yield from _describe(inner)
        elif options := list(_options(inner)):
            yield "\n".join(["| option | |", "| --- | --- |", *options])


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        yield f"```none\n{rest}\n```" if first == "\b" else _escaped(paragraph)


def _options(context: click.Context) -> Iterator[str]:
    for param in context.command.get_params(context):
        shown = isinstance(param, click.Option) and not _EVERYWHERE.intersection(param.opts)
        if shown and (record := param.get_help_record(context)):
            yield f"| `{record[0].replace('|', chr(92) + '|')}` | {_escaped(record[1])} |"


def _escaped(text: str) -> str:
    return re.sub(r"[*<\[\]|\\]", r"\\\g<0>", text)
