"""docs/python.md, made of the docstrings of what `bccnd` and `bccnd.aio` export."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import bccnd
import bccnd.aio
from docs.manual import wrapped

_HEAD: Final = """\
# The Python interface

Programs use `import bccnd`; asyncio programs use `import bccnd.aio`. This is the reference, and its examples are only
parts of programs. [Clients](clients.md) shows whole programs. `help(bccnd.connect)` shows the same text in a
terminal."""
#: classes of asyncio, and the blocking ones that they are like
_LIKE: Final[dict[type, type]] = {
    bccnd.aio.AsyncConnection: bccnd.Connection,
    bccnd.aio.AsyncSubscription: bccnd.Subscription,
}
#: classes of whose calls only the first paragraph is shown
_IN_SHORT: Final = (bccnd.Endpoint,)
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


def _signature(thing: Any) -> str:
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(thing)))
    text = text.replace("AsyncIterator[", "AsyncContextManager[")  # as the decorator makes it
    return re.sub(r"\(self(, /)?(, )?", "(", re.sub(r"\bbccnd(\.\w+)*\.(?=[A-Z])", "", text))


def _call(name: str, thing: Any, result: str | None = None) -> str:
    """How something is called, as a block of Python."""
    text = _signature(thing)
    if result is not None:
        text = text.removesuffix(" -> None") + result
    if len(name + text) > _WIDTH:
        inside, _, behind = text[1:].rpartition(")")
        text = "(\n" + "".join(f"    {one},\n" for one in re.split(r", (?=\w+: |\*)", inside)) + ")" + behind
    return f"```python\n{name}{text}\n```"


def _documented(thing: type) -> Iterator[tuple[str, Any]]:
    """Yield what a class offers to programs, with its names."""
    for name, member in inspect.getmembers(thing):
        if name.startswith("_") or not inspect.getdoc(member) or hasattr(tuple, name) or hasattr(Exception, name):
            continue
        if isinstance(member, property) or inspect.isfunction(member):
            yield name, member


def _indented(text: str) -> str:
    """Text that goes on within an item of a list."""
    return textwrap.indent(text, "  ").lstrip()


def _members(thing: type) -> Iterator[str]:
    """Yield an item for each call of a class; those that differ from another class by `await` alone by name."""
    other = _LIKE.get(thing)
    same: dict[bool, list[str]] = {True: [], False: []}
    for name, member in _documented(thing):
        if other is not None and _alike(member, getattr(other, name, None)):
            same[inspect.iscoroutinefunction(member)].append(f"`{name}`")
            continue
        call = "await " * inspect.iscoroutinefunction(member) + name
        if not isinstance(member, property):
            call += _signature(member)
        text = _markdown(member)
        first, _, rest = text.partition("\n\n")
        if thing in _IN_SHORT:
            rest = ""
        item = wrapped(f"- `{call}`: {' '.join(first.split())}").replace("\n", "\n  ")
        yield f"{item}\n\n  {_indented(rest)}" if rest else item
    for awaited, names in same.items():
        if other is not None and names:
            form = "with `await`" if awaited else "without `await`"
            yield wrapped(f"Like those of `bccnd.{other.__name__}`, {form}: {', '.join(names)}.")


def _alike(member: Any, other: Any) -> bool:
    """Whether the asyncio form of something differs from the blocking one by its `await` alone."""
    text = (inspect.getdoc(member) or "").replace("await ", "").replace("AsyncConnection", "Connection")
    return text == (inspect.getdoc(other) or "")


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
            elif inspect.isfunction(thing):
                parts.append(_call(called, thing))
            parts.append(_markdown(thing))
            if thing in _IN_SHORT:
                parts.append(f"`help({called})` has more about each call:")
            if inspect.isclass(thing):
                parts += _members(thing)
    return "\n\n".join(parts) + "\n"
