"""Configurations as text, read in tests."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bccnd.config import Settings, read
from bccnd.errors import ConfigError, Fault

PLACE = "/etc/bccnd/bccnd.yaml"


def faults(text: str) -> list[Fault]:
    """What is wrong with a text; every fault names file, reason and remedy in plain words."""
    with pytest.raises(ConfigError) as caught:
        read(text, PLACE)
    for fault in caught.value.faults:
        assert fault.file == PLACE
        assert fault.reason
        assert fault.remedy
        assert str(fault).startswith(f"{PLACE}:{fault.line}: " if fault.line else f"{PLACE}: ")
        assert f"remedy: {fault.remedy}" in str(caught.value)
        # The names of Python's types and of its libraries are no help.
        assert not re.search(r"(?i)tuple|\bdict|pydantic|value error|type=|instance of|after validation", fault.reason)
    return caught.value.faults


def fault_of(text: str) -> Fault:
    """The only thing wrong with a text."""
    (fault,) = faults(text)
    return fault


def settings_of(text: str) -> Settings:
    return read(text, PLACE).settings


def value_of(text: str, where: str) -> Any:
    """One value of the settings, by its keys and positions."""
    value: Any = settings_of(text)
    for part in where.split("."):
        value = value[int(part)] if part.isdigit() else getattr(value, part)
    return value
