"""docs/commands.md, made from the help of the commands: the first paragraph of each, and its options."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

import click

from bccnd.cli.main import main

_HEAD: Final = """# Commands

What each command does, and its options. `bccn COMMAND --help` has more, with examples and exit codes; so has `man
bccn`. Every command also takes `--socket PATH`, the path of the daemon's socket, before or after the name of the
command."""

#: options that every command has
_EVERYWHERE: Final = {"--help", "--socket"}
#: an option of so many commands is described once
_COMMON: Final = 3


def page() -> str:
    """The whole document."""
    root = click.Context(main, info_name="bccn")
    counts = Counter(record for context in _contexts(root) for record in _options(context))
    common = {record for record, count in counts.items() if count >= _COMMON}
    described = "\n".join(f"- `{name}`: {text}" for name, text in counts if (name, text) in common)
    parts = [_HEAD, "## Options of several commands", described]
    for context in _contexts(root):
        parts += _describe(context, common)
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


def _describe(context: click.Context, common: set[tuple[str, str]]) -> Iterator[str]:
    """Yield the usage, the first paragraph of the text, and the options of a command."""
    yield f"## {context.command_path}"
    arguments = " ".join(context.command.collect_usage_pieces(context)[1:])
    if arguments and not isinstance(context.command, click.Group):
        yield f"`{context.command_path} {arguments}`"
    yield _escaped(inspect.cleandoc(context.command.help or "").partition("\n\n")[0])
    if isinstance(context.command, click.Group):
        return
    options = list(_options(context))
    listed = [f"- `{name}`: {text}" if text else f"- `{name}`" for name, text in options if (name, text) not in common]
    shared = [f"`{name.partition(' ')[0].rstrip(',')}`" for name, text in options if (name, text) in common]
    if shared:
        listed.append(f"- as [above](#options-of-several-commands): {', '.join(shared)}")
    if listed:
        yield "\n".join(listed)


def _options(context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the options of a command, with what each does."""
    if isinstance(context.command, click.Group):
        return
    for param in context.command.get_params(context):
        shown = isinstance(param, click.Option) and not _EVERYWHERE.intersection(param.opts)
        if shown and (record := param.get_help_record(context)):
            yield record[0], _escaped(record[1])


def _escaped(text: str) -> str:
    return re.sub(r"[*<\[\]|\\]", r"\\\g<0>", text)
