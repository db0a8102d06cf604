"""docs/python.md, made of the docstrings of what `bccnd` and `bccnd.aio` export."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import bccnd
import bccnd.aio

_HEAD: Final = """\
# The Python interface

Programs use `import bccnd`; asyncio programs use `import bccnd.aio`. This is the reference, and its examples are only
parts of programs. [Clients](clients.md) shows whole programs. `help(bccnd.connect)` shows the same text in a
terminal."""
#: columns of a line
_WIDTH: Final = 120
_PARTS: Final = (
    ("Connecting", ((bccnd, "connect"), (bccnd.aio, "connect"))),
    (
        "A connection",
        (
            (bccnd, "Connection"),
            (bccnd, "Subscription"),
            (bccnd.aio, "AsyncConnection"),
            (bccnd.aio, "AsyncSubscription"),
        ),
    ),
    ("What is received", tuple((bccnd, name) for name in ("Message", "Gap", "Away", "Reconnected", "Refusal"))),
    ("Without a daemon", tuple((bccnd, name) for name in ("Endpoint", "read_key", "read_public_key"))),
    (
        "Errors",
        tuple(
            (bccnd, name)
            for name in ("BccndError", "BusError", "ConnectionLost", "RequestTimeout", "EndpointError", "BadKey")
        ),
    ),
)


def _markdown(thing: object) -> str:
    """A docstring as Markdown: names in backquotes stay, indented examples become blocks of Python."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\n(?=\S)", (inspect.getdoc(thing) or "").replace("``", "`")):
        text, *code = re.split(r"\n\n(?=    )", paragraph, maxsplit=1)
        lines += [text, ""]
        for block in code:
            lines += ["```python", textwrap.dedent(block).strip("\n"), "```", ""]
    return "\n".join(lines).rstrip()


def _call(name: str, thing: Any, result: str | None = None) -> str:
    """How something is called, as a block of Python."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(thing)))
    text = re.sub(r"\(self(, /)?(, )?", "(", re.sub(r"\bbccnd(\.\w+)*\.(?=[A-Z])", "", text))
    text = text.replace("AsyncIterator[", "AsyncContextManager[")  # as the decorator makes it
    if result is not None:
        text = text.removesuffix(" -> None") + result
    if len(name + text) > _WIDTH:
        inside, _, behind = text[1:].rpartition(")")
        text = "(\n" + "".join(f"    {one},\n" for one in re.split(r", (?=\w+: |\*)", inside)) + ")" + behind
    return f"```python\n{name}{text}\n```"


def _members(thing: type) -> Iterator[str]:
    for name, member in inspect.getmembers(thing):
        if name.startswith("_") or not inspect.getdoc(member) or hasattr(tuple, name) or hasattr(Exception, name):
            continue
        if isinstance(member, property):
            yield f"#### `{name}`\n\n{_markdown(member)}"
        elif inspect.isfunction(member):
            call = _call("await " * inspect.iscoroutinefunction(member) + name, member)
            yield f"#### `{name}`\n\n{call}\n\n{_markdown(member)}"


def page() -> str:
    """The whole document."""
    parts = [_HEAD]
    for title, names in _PARTS:
        parts.append(f"## {title}")
        for module, name in names:
            thing = getattr(module, name)
            called = f"{module.__name__}.{name}"
            parts.append(f"### `{called}`")
            if name == "Endpoint":
                parts.append(_call(called, thing, ""))
            elif name == "connect" or inspect.isfunction(thing):
                parts.append(_call(called, thing))
            parts.append(_markdown(thing))
            if inspect.isclass(thing):
                parts += _members(thing)
    return "\n\n".join(parts) + "\n"
