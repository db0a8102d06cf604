"""Callbacks by pattern, of connections and endpoints alike, as lines of words.

``+a:x/y`` has callback ``a`` listen to a pattern, ``-a:x/y`` takes that back, and ``?a:x/y`` finds nothing to take
back. ``x/y=ab`` is a message on a channel, and the callbacks that it is passed to, in their order. Callback ``r`` takes
back itself and ``o`` and has ``n`` listen to its pattern; ``f`` fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from bccnd.client.message import Message
from bccnd.client.router import PatternTable, call_listeners

HISTORIES: Final = {
    "in the order of their listening": "+a:x/> +b:x/y +c: +d:x/* +e:x/y +g:y x/y=abcde x/z=acd y=cg",
    "as often as they listen": "+a:x +a:x +a:x/ x=aa -a:x x=a -a:x x= ?a:x ?b:x/ ?a:x/> x/y=a !=a -a:x/ x/y= !=",
    "whatever their pattern for all and for this program": "+a:x +b:y !=ab !me=ab",
    "unless another one has taken them back": "+a:x +r:x +o:x +b:x x=arb x=abn",
    "also behind one that fails": "+f:x +a:x +f:x x=faf failed=2",
}


class Callbacks:
    """Callbacks by their names, and the names of those that were called."""

    def __init__(self) -> None:
        self.table: PatternTable[Callable[[Message], None]] = PatternTable()
        self.called = ""
        self.failures: list[Exception] = []
        self._named: dict[str, Callable[[Message], None]] = {}

    def named(self, name: str) -> Callable[[Message], None]:
        return self._named.setdefault(name, lambda message: self._call(name, message.chan.encode()))

    def _call(self, name: str, pattern: bytes) -> None:
        self.called += name
        if name == "f":
            raise ZeroDivisionError
        if name == "r":
            for other in "ro":
                assert self.table.remove_value(self.named(other), pattern)
            self.table.add(self.named("n"), pattern)

    def play(self, word: str) -> None:
        if word[0] in "+-?":
            name, _, pattern = word[1:].partition(":")
            if word[0] == "+":
                self.table.add(self.named(name), pattern.encode())
            else:
                assert self.table.remove_value(self.named(name), pattern.encode()) is (word[0] == "-")
            return
        chan, _, names = word.partition("=")
        if chan == "failed":
            assert len(self.failures) == int(names)
            return
        form = "plain" if chan[0] != "!" else "all" if chan == "!" else "directed"
        self.called = ""
        call_listeners(self.table, Message("b", 1, chan, b"", form, "local", 1), self.failures.append)
        assert self.called == names, word


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_callbacks_are_called(history: str) -> None:
    callbacks = Callbacks()
    for word in history.split():
        callbacks.play(word)
