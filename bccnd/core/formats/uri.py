"""Tells URIs from paths, and paths of folders from other names."""

from __future__ import annotations

import errno
import re
from typing import Final

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_uri(where: str) -> bool:
    """Whether a name is a URI (``scheme://...``), and not a path, which may have colons, too."""
    return bool(_URI.match(where))


def check_folder(where: str) -> None:
    """Refuse names of which pyarrow cannot make a folder of Parquet files. Raises OSError."""
    if where == "-":
        raise OSError(errno.ESPIPE, "Parquet files are in a folder, not in a stream")
    try:
        where.encode()
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, "its name is not UTF-8: rename it, or make a link to it") from None
