"""The generated parts of documents, made of the package: `make docs-parts`, or `python -m docs --write`."""

from __future__ import annotations

from pathlib import Path

from docs import api, commands, defaults, excerpts, metrics, quotes, reference, runbook, runbook_page, site


def generated() -> dict[Path, str]:
    """The files that hold something from elsewhere, as they should be: the manual page of the configuration with its
    defaults, the documents with their tables, excerpts and measured figures, and the runbook that the daemon serves."""
    manual = defaults.filled(reference.MANUAL.read_text())
    texts = {path: path.read_text() for path in [site.ROOT / "README.md", *sorted(site.DOCS.glob("*.md"))]}
    texts[site.DOCS / "python.md"] = api.page()
    texts[site.DOCS / "configuration.md"] = reference.page(manual)
    texts[site.DOCS / "commands.md"] = commands.page()
    texts[site.DOCS / "metrics.md"] = metrics.page()
    texts[site.DOCS / "runbook.md"] = runbook.filled(texts[site.DOCS / "runbook.md"])
    filled = {path: quotes.filled(path.name, excerpts.filled(text)) for path, text in texts.items()}
    page = runbook_page.page(filled[site.DOCS / "runbook.md"])
    return {reference.MANUAL: manual, runbook_page.PATH: page, **filled}


def outdated() -> list[Path]:
    """The files that `write` would change."""
    return [path for path, text in generated().items() if not path.exists() or path.read_text() != text]


def write() -> None:
    """Write anew what stands in documents and comes from elsewhere."""
    texts = generated()
    for path in outdated():
        path.write_text(texts[path])
