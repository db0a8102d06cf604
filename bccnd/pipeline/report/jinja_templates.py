"""Renders the templates of the report with Jinja2, with the formats of numbers and times as filters.

Invariant: names from the network are escaped in every page, and their unprintable characters in every text.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from inspect import getmembers, isfunction
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, select_autoescape
from markupsafe import Markup

from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.facts import sending_host


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("bccnd.pipeline.report"),
        autoescape=select_autoescape(("html", "svg"), default_for_string=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) or not isinstance(value, str) else fmt.plain(value),
    )
    environment.filters |= {**dict(getmembers(fmt, isfunction)), "sending_host": sending_host}
    return environment


def page(**values: Any) -> str:
    return _environment().get_template("page.html").render(values)


@cache
def data(name: str) -> dict[str, Any]:
    """Read a TOML file beside the templates."""
    return tomllib.loads(files("bccnd.pipeline.report").joinpath(f"templates/{name}.toml").read_text("utf-8"))


@cache
def text(section: str, part: str) -> Template:
    """Return a text of findings.toml; a part that a section lacks is that of the section `refused`."""
    texts = data("findings")
    return _environment().from_string((texts[section].get(part) or texts["refused"][part]).replace("\n", ""))
