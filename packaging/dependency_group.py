"""Prints the packages of dependency groups, one a line: dependency_group.py GROUP ...

pip 25.1 has `--group` for this; Debian 12 and Ubuntu 24.04 have an older one.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"


def requirements(groups: dict[str, list[Any]], name: str) -> Iterator[str]:
    """Yield the packages of a group, with those of the groups that it includes (PEP 735)."""
    for entry in groups[name]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from requirements(groups, entry["include-group"])


def main() -> None:
    groups = tomllib.loads(PROJECT.read_text())["dependency-groups"]
    wanted = [one for name in sys.argv[1:] for one in requirements(groups, name)]
    print(*dict.fromkeys(wanted), sep="\n")


if __name__ == "__main__":
    main()
