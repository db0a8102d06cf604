"""docs/commands.md, made from the help of the commands: the first paragraph of each, and the names of its options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

import click

from bccnd.cli.main import main
from docs.manual import wrapped

_HEAD: Final = """# Commands

What each command does, and which options it has. `bccn COMMAND --help` explains them, with examples and exit codes; so
does `man bccn`. Every command also takes `--socket PATH`, the path of the daemon's socket, before or after the name of
the command."""

#: options that every command has
_EVERYWHERE: Final = {"--help", "--socket"}


def page() -> str:
    """The whole document."""
    parts = [_HEAD]
    for context in _contexts(click.Context(main, info_name="bccn")):
        parts += _describe(context)
    return "\n\n".join(parts) + "\n"


def _contexts(context: click.Context) -> Iterator[click.Context]:
    """Yield the commands of a group, and those within."""
    assert isinstance(context.command, click.Group)
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield inner
        if isinstance(command, click.Group):
            yield from _contexts(inner)


def _describe(context: click.Context) -> Iterator[str]:
    """Yield the usage, the first paragraph of the text, and the options of a command."""
    yield f"## {context.command_path}"
    arguments = " ".join(context.command.collect_usage_pieces(context)[1:])
    if arguments and not isinstance(context.command, click.Group):
        yield f"`{context.command_path} {arguments}`"
    yield _escaped(inspect.cleandoc(context.command.help or "").partition("\n\n")[0])
    if isinstance(context.command, click.Group):
        return
    if names := [f"`{name}`" for name in _options(context)]:
        yield wrapped(f"Options: {', '.join(names)}.")


def _options(context: click.Context) -> Iterator[str]:
    """Yield the options of a command, with their arguments."""
    for param in context.command.get_params(context):
        shown = isinstance(param, click.Option) and not _EVERYWHERE.intersection(param.opts)
        if shown and (record := param.get_help_record(context)):
            yield record[0]


def _escaped(text: str) -> str:
    return re.sub(r"[*<\[\]|\\]", r"\\\g<0>", text)
