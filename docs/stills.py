"""`python -m docs.stills` (`make stills`): runs the demo and writes what it shows in a terminal as pictures.

Each still is what one or several steps of `make demo` have printed, as docs/demo-NAME.svg. The demo ends before its
last step, the report.
"""

from __future__ import annotations

import io
import re
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich import _export_format
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from examples import demo

FOLDER: Final = Path(__file__).parent
#: columns of the terminal
WIDTH: Final = 108
#: stills by the first and the last step that they show
STILLS: Final = {"checks": (4, 6), "fleet": (13, 14)}
#: what a picture of rich would fetch from another host, and its note about rich
_LEFT_OUT: Final = re.compile(r"\s*@font-face \{\{.*?\}\}|<!-- Generated .*?-->\s*", re.DOTALL)
FORMAT: Final = _LEFT_OUT.sub("", _export_format.CONSOLE_SVG_FORMAT).replace(
    "Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace"
)


class _Ended(Exception):
    """All that is shown has been printed."""


class Stills:
    """The steps of a demo, of which those between two are one picture."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.console = Console(
            file=io.StringIO(), record=True, force_terminal=True, width=WIDTH, highlight=False, soft_wrap=True
        )

    def begin(self, text: str) -> None:
        """Print the heading of a step, after the picture of those before. Raises _Ended behind the last picture."""
        step = int(text.partition(".")[0])
        for name, (first, last) in STILLS.items():
            if step == last + 1:
                self._write(name)
            elif step == first:
                self.console.export_text(clear=True)
        if step > max(last for _, last in STILLS.values()):
            raise _Ended
        blank = "" if any(step == first for first, _ in STILLS.values()) else "\n"
        self.console.print(f"{blank}[bold]{text}[/]")

    def _write(self, name: str) -> None:
        picture = self.console.export_svg(
            title="make demo", theme=DIMMED_MONOKAI, code_format=FORMAT, unique_id=f"demo-{name}", clear=True
        )
        (self._folder / f"demo-{name}.svg").write_text(picture + "\n")


def write(folder: Path) -> None:
    """Run the demo, and write the stills into a folder."""
    stills = Stills(folder)
    demo.console, demo.print_step = stills.console, stills.begin
    place = Path(tempfile.mkdtemp(prefix="bccnd-demo-"))
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, place)
        try:
            demo.play(place, undo)
        except _Ended:
            return


if __name__ == "__main__":
    write(FOLDER)
