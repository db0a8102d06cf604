"""A page of HTML, taken apart."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final

#: elements that nothing ends
_VOID: Final = {"base", "br", "img", "input", "link", "meta"}


class HtmlReader(HTMLParser):
    """The elements and texts of a page: ``elements`` with the names of their attributes, and the ends of elements;
    ``found`` with the attributes themselves; ``texts`` with the elements that each is in, by tag and classes."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.found: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, tuple[tuple[str, str], ...]]] = []
        #: whether each element was ended, in its turn
        self.balanced = True
        self._open: list[tuple[str, str]] = []
        self.feed(page)
        self.close()
        self.balanced = self.balanced and not self._open

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.found.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self._open.append((tag, dict(attrs).get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}", ()))
        if tag not in _VOID:
            self.balanced = self.balanced and bool(self._open) and self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((data, tuple(self._open)))

    def _other(self, *_: object, **__: object) -> None:
        self.elements.append(("other", ()))

    handle_comment = handle_decl = unknown_decl = handle_pi = _other
