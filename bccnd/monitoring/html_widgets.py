"""Building blocks of the status page: sections, tables, numbers, durations and times."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from bccnd.monitoring.html import Markup, element, joined

#: an empty cell
NOTHING: Final = Markup("\u2013")
#: CSS classes of columns, by the first character of their names
_KINDS: Final = {"#": "n", "~": "t"}

e = element


def section(name: str, title: str, *content: object) -> Markup:
    heading = e("h2", title, id=f"{name}-title")
    return e("section", heading, *content, id=name, aria_labelledby=f"{name}-title", tabindex="-1")


def data_table(caption: str, names: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> Markup:
    """Return a table whose first column holds the row headings.

    A name that begins with ``#`` is a column of numbers, one with ``~`` a column of long text. Roles are repeated
    explicitly: CSS lays the table out differently on a small screen, which hides them from screen readers.
    """
    plain = [(name.lstrip("#~"), _KINDS.get(name[0])) for name in names]
    head = [e("th", name, scope="col", class_=kind, role="columnheader") for name, kind in plain]
    body = []
    for row in rows:
        cells = [e("th", row[0], scope="row", role="rowheader", class_=plain[0][1])]
        for value, (name, kind) in zip(row[1:], plain[1:], strict=True):
            kinds = " ".join([*([kind] if kind else []), *(["nil"] if value == NOTHING else [])])
            cells.append(e("td", e("span", value), class_=kinds or None, role="cell", data_name=name))
        body.append(e("tr", cells, role="row"))
    return e(
        "table",
        e("caption", caption),
        e("thead", e("tr", head, role="row"), role="rowgroup"),
        e("tbody", body, role="rowgroup"),
        role="table",
    )


def figure_list(*figures: tuple[str, str, str]) -> Markup:
    return e(
        "dl", [definition(name, joined(value, e("small", more))) for name, value, more in figures], class_="figures"
    )


def definition(name: str, value: object) -> Markup:
    return e("div", e("dt", name), e("dd", value))


def more_rows(number: int, command: str) -> Markup | None:
    """Return a note about rows that were left out, with the command that lists them."""
    return e("p", f"And {count_text(number)} more: ", e("code", command), class_="soft") if number > 0 else None


def count_text(count: int) -> str:
    return f"{count:,}"


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
    return e("small", per_second(rate))


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
    return e("time", text, datetime=f"{moment:%Y-%m-%dT%H:%M:%SZ}")


def age_element(when: float | None, at: float) -> Markup | None:
    return None if when is None else e("span", f" {duration(at - when)} ago", class_="ago")
