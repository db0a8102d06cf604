"""A group of commands whose modules are imported only when a command is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    """Where a command is (``module:function``), its summary, and whether it takes ``--socket``."""

    place: str
    summary: str
    socket: bool = True


def complete_files(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Have the shell complete names of files."""
    return [CompletionItem(incomplete, type="file")]


def _set_socket(context: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.obj = value


#: `--socket` behind a command; in front of it, it is an option of `bccn`
_SOCKET: Final = click.Option(
    ["--socket"],
    metavar="PATH",
    expose_value=False,
    callback=_set_socket,
    shell_complete=complete_files,
    help="The daemon's socket, like that of bccn.",
)


class LazyGroup(click.Group):
    """A group whose commands are listed in ``entries``. Help and completion import none of them."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entries = entries

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is not None and cmd_name not in self.commands:
            module, _, function = entry.place.partition(":")
            command: click.Command = getattr(import_module(f"bccnd.cli.{module}"), function)
            if entry.socket:
                command.params.append(_SOCKET)
            self.add_command(command, cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        matching = ((name, entry) for name, entry in self.entries.items() if name.startswith(incomplete))
        found = [CompletionItem(name, help=entry.summary) for name, entry in matching]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]
