"""What somebody has said about a source or a sink with ``.option(name, value)``.

Law: an option that is not known, or that means nothing, is refused in one line; none is ignored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping

from bccnd.errors import PipelineError


class Options:
    """Options by name, whatever the case of the letters."""

    def __init__(self, given: Mapping[str, str], known: Collection[str]) -> None:
        """Raises PipelineError: bad_option."""
        self._given = {name.lower(): value for name, value in given.items()}
        strange = sorted(set(self._given) - {name.lower() for name in known})
        if strange:
            raise bad(f"no option is called {strange[0]}", f"take {', '.join(sorted(known))}")

    def text(self, name: str, default: str = "") -> str:
        return self._given.get(name.lower(), default)

    def required(self, name: str, what: str) -> str:
        value = self.text(name)
        if not value:
            raise bad(f"the option {name} is missing", what)
        return value

    def one_of(self, name: str, choices: Collection[str], default: str) -> str:
        value = self.text(name, default)
        if value not in choices:
            raise bad(f"the option {name} is {value!r}", f"take one of {', '.join(sorted(choices))}")
        return value

    def flag(self, name: str) -> bool:
        return self.one_of(name, ("true", "false"), "false") == "true"

    def number(self, name: str, default: float, least: float, most: float) -> float:
        value = self.text(name)
        if not value:
            return default
        with contextlib.suppress(ValueError):
            if least <= (number := float(value)) <= most:
                return number
        raise bad(f"the option {name} is {value!r}", f"take a number from {least:g} to {most:g}")


def bad(detail: str, remedy: str) -> PipelineError:
    return PipelineError("bad_option", detail, remedy)
