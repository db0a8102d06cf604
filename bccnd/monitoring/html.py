"""Builds HTML elements from plain data.

Invariant: text becomes markup only here. Everything that is not `Markup` is escaped, in content and in attributes.
"""

from __future__ import annotations

from html import escape
from typing import Final

#: elements without an end tag
_VOID: Final = frozenset({"meta", "link", "br"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *content: object, **attributes: object) -> Markup:
    """Return an element. None and False omit an attribute, True writes it without a value.

    In names of attributes ``_`` stands for ``-``; a trailing one is removed (``class_``).
    """
    pairs = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value), quote=True)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    start = f"<{name}{pairs}>"
    return Markup(start if name in _VOID else f"{start}{joined(*content)}</{name}>")


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
