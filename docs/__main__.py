"""`python -m docs`: writes what documents take from elsewhere, and makes the site; `--write` only the former."""

from __future__ import annotations

import sys

from docs import site

OUT = site.ROOT / "build/docs"


def main(arguments: list[str]) -> int:
    site.write()
    if arguments == ["--write"]:
        return 0
    if arguments:
        print("usage: python -m docs [--write]", file=sys.stderr)
        return 2
    try:
        status = site.build(OUT, site.ROOT / "build/docs-source")
    except site.BrokenLink as broken:
        print(f"docs: {broken}", file=sys.stderr)
        return 1
    if not status:
        print(f"the documents are in {OUT}: open {OUT / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
