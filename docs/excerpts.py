"""Files that stand in documents: what is shown is the file, to the letter.

If a paragraph ends with a link to a file of examples/ and a colon, the block of code behind it is that file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
#: the end of the line before the block
LINK: Final = re.compile(r"\]\(\.\./(?P<path>examples/[^)\s]+)\):$", re.MULTILINE)
#: that with the block
BLOCK: Final = re.compile(LINK.pattern + r"\n\n(?P<fence>```\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def filled(text: str) -> str:
    """A document with the files in it as they are now."""
    return BLOCK.sub(
        lambda found: found[0][: found.start("text") - found.start()] + (ROOT / found["path"]).read_text() + "```",
        text,
    )
