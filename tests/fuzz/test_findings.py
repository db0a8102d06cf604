"""What fuzzing has kept and found, through every target once more: without atheris, and in either build."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.fuzz.replay import kept
from tests.fuzz.seeds import CORPUS, SEEDS, name_of
from tests.fuzz.targets import TARGETS

pytest.importorskip("pyarrow")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What is refused is logged, thousands of times."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TARGETS)
def test_all_that_was_kept_and_found_is_still_well(name: str) -> None:
    run = TARGETS[name].load()
    for path in kept(name):
        try:
            run(path.read_bytes())
        except Exception as error:
            error.add_note(f"run it again: python -m tests.fuzz.replay {name} {path}")
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_the_same_bytes_come_to_the_same(name: str) -> None:
    run = TARGETS[name].load()
    for path in kept(name)[:10]:
        data = path.read_bytes()
        assert repr(run(data)) == repr(run(data)), path


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS) == set(SEEDS)
    assert all(kept(name) for name in TARGETS)


def test_the_corpus_is_small_and_called_after_what_it_holds() -> None:
    files = [path for name in TARGETS for path in (CORPUS / name).iterdir()]
    assert sum(path.stat().st_size for path in files) < 1 << 20
    assert [path for path in files if path.name != name_of(path.read_bytes())] == []


def test_what_is_wrong_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target must fail where the code and its oracle differ: here the slow matcher has forgotten a pattern."""
    run = TARGETS["patterns"].load()
    run(b"\0a/*\na/b\na/b")
    monkeypatch.setattr("tests.fuzz.targets.bus.naive.matches", lambda *_: False)
    with pytest.raises(AssertionError):
        run(b"\0a/*\na/b\na/b")
