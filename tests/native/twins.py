"""The modules of bccnd/native under test: as imported here and, where that is compiled, the plain one as well."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from functools import cache
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings

from tests import support

#: places of a caller that has miscounted
BEYOND: Final = (-sys.maxsize - 1, -sys.maxsize, -(1 << 32), -(1 << 31), -2, -1, 1 << 31, 1 << 32, sys.maxsize)

#: a test is run once for each build; hypothesis need not warn of it
EACH: Final = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.differing_executors]


def builds(name: str) -> list[ModuleType]:
    """The builds of a module that there are here."""
    (path,) = (support.ROOT / "bccnd/native").glob(f"*/{name}.py")
    module = importlib.import_module(f"bccnd.native.{path.parent.name}.{name}")
    return [module, _plain(module.__name__)] if is_compiled(module) else [module]


@cache
def _plain(name: str) -> ModuleType:
    """Load the plain build of a module, with that of each module of `native` whose names it imports."""
    path = support.ROOT / name.replace(".", "/")
    spec = importlib.util.spec_from_file_location(f"plain_{path.name}", path.with_suffix(".py"))
    assert spec is not None
    assert spec.loader is not None
    twin = importlib.util.module_from_spec(spec)
    needed = re.findall(r"^from (bccnd\.native\.\w+\.\w+) import", path.with_suffix(".py").read_text(), re.MULTILINE)
    with patch.dict(sys.modules, {one: _plain(one) for one in needed}):
        spec.loader.exec_module(twin)
    return twin


def is_compiled(module: Any) -> bool:
    return not str(module.__file__).endswith(".py")


def each(name: str) -> pytest.MarkDecorator:
    """Run a test once for each build of a module; it gets the build as an argument of the module's name."""
    found = builds(name)
    return pytest.mark.parametrize(name, found, ids=["compiled" if is_compiled(one) else "plain" for one in found])


def examples(count: int) -> settings:
    """The settings for a property that needs ``count`` examples in the profile ``full``; see `support.examples`."""
    return settings(max_examples=support.examples(count), suppress_health_check=EACH)
