"""`python -m docs`: writes the generated parts of documents, and makes the site.

`--write` only writes them. `--check` only names those that are out of date, with status 1 if there are any.
"""

from __future__ import annotations

import sys

from docs import site

OUT = site.ROOT / "build/docs"


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        return check()
    if arguments not in ([], ["--write"]):
        print("usage: python -m docs [--write | --check]", file=sys.stderr)
        return 2
    site.write()
    if arguments:
        return 0
    try:
        status = site.build(OUT, site.ROOT / "build/docs-source")
    except site.BrokenLink as broken:
        print(f"docs: {broken}", file=sys.stderr)
        return 1
    if not status:
        print(f"the documents are in {OUT}: open {OUT / 'index.html'}")
    return status


def check() -> int:
    outdated = site.outdated()
    for path in outdated:
        print(f"{path.relative_to(site.ROOT)} is out of date: run make docs", file=sys.stderr)
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
