"""Files that stand in documents: what is shown is the file, to the letter.

Behind a line ``<!-- the file PATH -->`` a block of code follows, and its text is that of the file, or of the part
of it that is named (``<!-- the file PATH from "LINE" to "LINE" -->``, both lines included).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
#: the mark with its block
BLOCK: Final = re.compile(
    r'^<!-- the file (?P<path>\S+)(?: from "(?P<begin>[^"]*)" to "(?P<end>[^"]*)")? -->\n(?:<!-- [^\n]* -->\n)*\n?'
    r"(?P<fence>```\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def _part(path: str, begin: str | None, end: str | None) -> str:
    lines = (ROOT / path).read_text().splitlines(keepends=True)
    if begin is None or end is None:
        return "".join(lines)
    bare = [line.rstrip("\n") for line in lines]
    first = bare.index(begin)
    return "".join(lines[first : bare.index(end, first) + 1])


def filled(text: str) -> str:
    """A document with the files in it as they are now."""
    return BLOCK.sub(
        lambda found: (
            found[0][: found.start("text") - found.start()] + _part(found["path"], found["begin"], found["end"]) + "```"
        ),
        text,
    )
