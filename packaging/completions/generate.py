"""Writes the shell completions of our commands: generate.py FOLDER

Invariant: click knows what completes, so nothing is written down twice. For each shell a folder, with a file for each
command under the name that the shell looks for.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from bccnd.cli import bccnd_main, sbusd
from bccnd.cli import main as bccn

COMMANDS: dict[str, click.Command] = {"bccnd": bccnd_main.main, "bccn": bccn.main, "bccn-sbusd": sbusd.main}
FILES = {"bash": "{}", "zsh": "_{}", "fish": "{}.fish"}


def source(shell: str, name: str) -> str:
    """What a shell reads to complete a command."""
    kind = get_completion_class(shell)
    if kind is None:
        raise LookupError(f"this click does not know {shell}")
    return kind(COMMANDS[name], {}, name, f"_{name}_COMPLETE".replace("-", "_").upper()).source()


def main(folder: Path) -> None:
    for shell, pattern in FILES.items():
        (folder / shell).mkdir(parents=True, exist_ok=True)
        for name in COMMANDS:
            (folder / shell / pattern.format(name)).write_text(source(shell, name), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
