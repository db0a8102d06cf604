"""The finder of compiled modules."""

from __future__ import annotations

from bccnd.compiled_modules import COMPILED, LibraryFinder
from tests.support import ROOT


def test_modules_of_the_list_are_found_in_the_library_and_no_others() -> None:
    finder = LibraryFinder("/some/library.so")
    for name in COMPILED:
        spec = finder.find_spec(name)
        assert spec is not None
        assert (spec.name, spec.origin, spec.has_location) == (name, "/some/library.so", True)
    assert [
        finder.find_spec(name) for name in ("bccnd", "bccnd.core", "bccnd.core.wire.identity_format", "ingress")
    ] == [None] * 4


def test_each_module_of_the_list_has_a_plain_source_of_the_same_name() -> None:
    assert [name for name in COMPILED if not (ROOT / f"{name.replace('.', '/')}.py").is_file()] == []
