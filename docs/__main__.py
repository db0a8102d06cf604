"""`python -m docs`: makes the site of the documents as they are. This takes only the packages of the group docs.

`--write` writes the generated parts of the documents. `--check` names those that are out of date, with status 1 if
there are any. Both take the package and all that it needs.
"""

from __future__ import annotations

import sys

from docs import site

OUT = site.ROOT / "build/docs"


def main(arguments: list[str]) -> int:
    if not arguments:
        return build()
    if arguments not in (["--write"], ["--check"]):
        print("usage: python -m docs [--write | --check]", file=sys.stderr)
        return 2
    from docs import generated  # it imports the package

    if arguments == ["--write"]:
        generated.write()
        return 0
    outdated = generated.outdated()
    for path in outdated:
        print(f"{path.relative_to(site.ROOT)} is out of date: run make docs-parts", file=sys.stderr)
    return 1 if outdated else 0


def build() -> int:
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
