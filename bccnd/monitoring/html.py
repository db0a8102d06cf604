"""HTML out of plain data.

Law: this is the only place where text becomes markup, and whatever is not `Markup` already is escaped here, as content
and as the value of an attribute alike.
"""

from __future__ import annotations

from html import escape
from typing import Final

#: elements that have no end
_VOID: Final = frozenset({"meta", "link", "br"})


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


def element(name: str, /, *content: object, **attributes: object) -> Markup:
    """An element with content and attributes; None and False leave an attribute out, True gives it without a value.
    In names of attributes ``_`` stands for ``-``, and one at the end for nothing (``class_``)."""
    said = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value), quote=True)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    start = f"<{name}{said}>"
    return Markup(start if name in _VOID else f"{start}{joined(*content)}</{name}>")


def joined(*content: object) -> Markup:
    """Contents one behind the other; lists are gone through, None is nothing."""
    return Markup("".join(_one(each) for each in content))


def _one(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, Markup):
        return content
    if isinstance(content, list | tuple):
        return joined(*content)
    return escape(str(content), quote=True)
