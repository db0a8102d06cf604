"""How Sphinx makes the site: a plain theme, light and dark, with everything it needs in its own folder."""

from __future__ import annotations

from typing import Final

from bccnd.version import VERSION

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
