"""How Sphinx makes the site: a plain theme, light and dark, with everything it needs in its own folder."""

from __future__ import annotations

import runpy
import tomllib
from typing import Final

from sphinx.application import Sphinx

from docs import site

# Without the package, which needs more than the site does.
VERSION: Final = runpy.run_path(str(site.ROOT / "bccnd/version.py"))["VERSION"]
REPOSITORY: Final = tomllib.loads((site.ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]

project: Final = "bccnd"
# Sphinx asks for it by this name
copyright: Final = "the authors of bccnd; MIT"  # noqa: A001
version: Final = VERSION
release: Final = VERSION

extensions: Final = ["myst_parser"]
myst_heading_anchors: Final = 4
#: what people click on in GitHub, too, and nothing beyond it
myst_enable_extensions: Final[list[str]] = []
nitpicky: Final = True

html_theme: Final = "furo"
html_title: Final = f"bccnd {VERSION}"
html_show_copyright: Final = False
html_copy_source: Final = False
html_show_sourcelink: Final = False
html_static_path: Final = ["site.css"]
html_css_files: Final = ["site.css"]
#: nothing that would be fetched from elsewhere
html_theme_options: Final[dict[str, object]] = {"footer_icons": []}
if ".dev" in VERSION:
    html_theme_options["announcement"] = f"Version {VERSION} is in development; no version is published yet."


def link_source(_app: Sphinx, page: str, _template: str, context: dict[str, object], _tree: object) -> None:
    """Link a page to where its file can be edited."""
    context["theme_source_edit_link"] = f"{REPOSITORY}/edit/main/{site.source_of(page)}"


def setup(app: Sphinx) -> None:
    app.connect("html-page-context", link_source)
