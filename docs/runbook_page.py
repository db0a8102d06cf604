"""Makes bccnd/monitoring/runbook.html, the runbook that the daemon serves, of docs/runbook.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

PATH: Final = Path(__file__).parents[1] / "bccnd/monitoring/runbook.html"
_HEAD: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Runbook of bccnd</title>
<style>
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 1rem auto; max-width: 60rem; padding: 0 1rem; }
pre { overflow-x: auto; }
td, th { padding: 0.2rem 1rem 0.2rem 0; text-align: left; vertical-align: top; }
:target { outline: 2px solid; outline-offset: 0.3rem; }
</style>
"""
#: links to other pages, which the daemon does not serve
_FOREIGN: Final = re.compile(r'<a href="(?!#|https?:)[^"]*">(.*?)</a>', re.DOTALL)
_HEADING: Final = re.compile(r"<h([23])>(.*?)</h\1>")


def _with_anchor(heading: re.Match[str]) -> str:
    level, text = heading.groups()
    anchor = re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")
    return f'<h{level} id="{anchor}">{text}</h{level}>'


def page(runbook: str) -> str:
    """Return the page, with the anchors that links into the runbook have."""
    body = MarkdownIt("commonmark").enable("table").render(runbook)
    return _HEAD + _HEADING.sub(_with_anchor, _FOREIGN.sub(r"\1", body)) + "</html>\n"
