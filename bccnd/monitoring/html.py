"""Builds HTML from plain data: elements, and the tables, figures, numbers and times of the status page.

Invariant: text becomes markup only here. Everything that is not `Markup` is escaped, in content and in attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *content: object, **attributes: object) -> Markup:
    """Return an element. None omits an attribute. ``_`` in its name stands for ``-``, but is removed at the end."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{pairs}>{joined(*content)}</{name}>")


def joined(*content: object) -> Markup:
    """Concatenate contents; lists are flattened, None is omitted."""
    return Markup("".join(_escaped(each) for each in content))


def _escaped(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, Markup):
        return content
    if isinstance(content, list | tuple):
        return joined(*content)
    return escape(str(content), quote=True)


# -- parts of the page

#: an empty cell
NOTHING: Final = Markup("\u2013")
#: CSS classes of columns, by the first character of their names
_KINDS: Final = {"#": "n", "~": "t"}


def section(name: str, title: str, *content: object) -> Markup:
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *content, id=name, aria_labelledby=f"{name}-title", tabindex="-1")


def data_table(
    caption: str, names: tuple[str, ...], rows: Sequence[tuple[object, ...]], empty: str = ""
) -> Markup | None:
    """Return a table whose first column holds the row headings; without rows the sentence ``empty``, if there is one.

    A name that begins with ``#`` is a column of numbers, one with ``~`` a column of long text. Roles are repeated
    explicitly: CSS lays the table out differently on a small screen, which hides them from screen readers.
    """
    if not rows:
        return element("p", empty, class_="none") if empty else None
    plain = [(name.lstrip("#~"), _KINDS.get(name[0])) for name in names]
    head = [element("th", name, scope="col", class_=kind, role="columnheader") for name, kind in plain]
    body = []
    for row in rows:
        cells = [element("th", row[0], scope="row", role="rowheader", class_=plain[0][1])]
        for value, (name, kind) in zip(row[1:], plain[1:], strict=True):
            kinds = " ".join([*([kind] if kind else []), *(["nil"] if value == NOTHING else [])])
            cells.append(element("td", element("span", value), class_=kinds or None, role="cell", data_name=name))
        body.append(element("tr", cells, role="row"))
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", head, role="row"), role="rowgroup"),
        element("tbody", body, role="rowgroup"),
        role="table",
    )


def figure_list(*figures: tuple[str, str, str]) -> Markup:
    entries = [definition(name, joined(value, element("small", more))) for name, value, more in figures]
    return element("dl", entries, class_="figures")


def definition(name: str, value: object) -> Markup:
    return element("div", element("dt", name), element("dd", value))


def more_rows(number: int, command: str) -> Markup | None:
    """Return a note about rows that were left out, with the command that lists them."""
    if number <= 0:
        return None
    return element("p", f"And {count_text(number)} more: ", element("code", command), class_="soft")


def count_text(count: int) -> str:
    return f"{count:,}"


def bad_count(count: int) -> Markup | str:
    """Format a number that should be 0."""
    return element("strong", count_text(count), class_="bad") if count else "0"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.001 else "<0.1 %"


def rate_text(rate: float) -> str:
    """Format a rate; a positive one is never shown as 0."""
    if rate <= 0.0:
        return "0"
    return f"{rate:,.0f}" if rate >= 10.0 else f"{rate:.1f}" if rate >= 0.1 else "<0.1"


def per_second(rate: float) -> str:
    return f"{rate_text(rate)}/s"


def small_rate(rate: float) -> Markup:
    return element("small", per_second(rate))


def size_text(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"


def duration(seconds: float) -> str:
    """Format a duration by its two largest units."""
    rest = max(0, int(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, length)
        if number or (parts and len(parts) < 2) or unit == "s":
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


def time_element(when: float | None, at: float) -> Markup:
    """Return a time element in UTC; the script converts it to local time."""
    if when is None:
        return NOTHING
    moment = datetime.fromtimestamp(when, UTC)
    text = f"{moment:%H:%M:%S}" if at - when < 64_800 else f"{moment:%Y-%m-%d %H:%M}"
    return element("time", text, datetime=f"{moment:%Y-%m-%dT%H:%M:%SZ}")


def time_with_age(when: float | None, at: float) -> Markup:
    age = None if when is None else element("span", f" {duration(at - when)} ago", class_="ago")
    return joined(time_element(when, at), age)
