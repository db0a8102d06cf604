"""What the shell completes beyond names of files: ``SRC=FILE``, which bash takes for three words."""

from __future__ import annotations

import os
from typing import Final

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class

#: files of a folder that are offered
_MOST: Final = 1000


def complete_signers(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the file of ``SRC=FILE``; a folder ends with a slash."""
    prefix, equals, path = incomplete.rpartition("=")
    if not equals:
        return []
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder or ".") as entries:
            found = sorted(f"{one.name}{'/' * one.is_dir()}" for one in entries if one.name.startswith(name))
    except OSError:
        return []
    shown = (one for one in found if name or not one.startswith("."))
    return [
        CompletionItem(f"{prefix}={os.path.join(folder, one)}") for one, _ in zip(shown, range(_MOST), strict=False)
    ]


class JoiningBashComplete(BashComplete):
    """Bash splits words at ``=``; what is behind it is a word for which it finds files itself."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        joined: list[str] = []
        glued = False
        for word in [*args, incomplete]:
            if joined and (glued or word == "="):
                joined[-1] += word
            else:
                joined.append(word)
            glued = word == "="
        return joined[:-1], joined[-1]

    def format_completion(self, item: CompletionItem) -> str:
        if item.type == "plain" and "=" in item.value:
            item = CompletionItem("", type="file")
        return super().format_completion(item)


add_completion_class(JoiningBashComplete)
