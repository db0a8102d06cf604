"""Every number, duration and size of the configuration refuses what is none, or is out of range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import pytest

from bccnd.config import Settings
from bccnd.config.values import Section
from tests.config.texts import faults

#: as they are written in the file
EXTREMES = (
    *(".inf", "-.inf", ".nan", "-1", "1e308", "1.0e+308", "inf", "nan", "-1s", "1e308s", "infs", "0x8000000000000000"),
    *("9" * 23, "9" * 400, "9" * 5000, f"{'9' * 23}d", f"{'9' * 400}d", f"1{'0' * 23}ms", f"{'9' * 12}GiB"),
    *("\u0663", "\u0663s", "\u0663KiB", "\u00b2", "\uff15", "[]", "{}", "''", "true"),
)


def parts(annotation: Any) -> Iterator[Any]:
    """The types of which an annotation is made."""
    yield annotation
    for one in get_args(annotation)[: 1 if get_origin(annotation) is Annotated else None]:
        yield from parts(one)


def numbers(section: type[Section], path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all values that are numbers."""
    for name, field in section.model_fields.items():
        kinds = list(parts(field.annotation))
        inner = [one for one in kinds if isinstance(one, type) and issubclass(one, Section)]
        place = (*path, name, *([0] if any(get_origin(one) is tuple for one in kinds) else []))
        for one in inner:
            yield from numbers(one, place)
        if not inner and str not in kinds and (int in kinds or float in kinds):
            yield place


NUMBERS = sorted(set(numbers(Settings)), key=str)
assert len(NUMBERS) > 30


@pytest.mark.parametrize("path", NUMBERS, ids=lambda path: ".".join(map(str, path)))
def test_an_extreme_value_is_a_fault_of_its_key(path: tuple[str | int, ...]) -> None:
    for value in EXTREMES:
        text = value
        for part in reversed(path):
            text = f"[{text}]" if part == 0 else f"{{{part}: {text}}}"
        # A number that Python does not read at all is a fault of its line.
        assert any(str(path[-1]) in fault.path or (len(value) == 5000 and fault.line) for fault in faults(text)), text
        assert all(len(fault.reason) < 300 for fault in faults(text)), value[:40]
