"""Reads the options of the sink, ``.option(name, value)``; unknown and invalid ones are refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bccnd.core.formats.durations_and_sizes import parse_number
from bccnd.errors import PipelineError


class Options:
    """Options by name, regardless of case."""

    def __init__(self, given: Mapping[str, str], supported: Collection[str]) -> None:
        """Raises PipelineError: bad_option."""
        self._given = {str(name).lower(): str(value) for name, value in given.items()}
        for name in sorted(set(self._given) - {name.lower() for name in supported}):
            raise bad_option(f"the option {name} does not exist", f"take {', '.join(sorted(supported))}")

    def text(self, name: str, default: str = "") -> str:
        return self._given.get(name.lower(), default)

    def one_of(self, name: str, choices: Collection[str], default: str) -> str:
        value = self.text(name, default)
        if value not in choices:
            raise bad_option(f"the option {name} is {value!r}", f"use one of {', '.join(sorted(choices))}")
        return value

    def flag(self, name: str) -> bool:
        return self.one_of(name, ("true", "false"), "false") == "true"

    def number(self, name: str, default: float, least: float, most: float) -> float:
        value = self.text(name)
        number = parse_number(value) if value else default
        if number is not None and (not value or least <= number <= most):
            return number
        raise bad_option(f"the option {name} is {value!r}", f"use a number from {least:g} to {most:g}")


def bad_option(detail: str, remedy: str) -> PipelineError:
    return PipelineError("bad_option", detail, remedy)
