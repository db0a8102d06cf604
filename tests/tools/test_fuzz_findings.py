"""What fuzzing has kept and found, through every target once more, without atheris."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tools.fuzz import CORPUS, kept
from tools.fuzz.targets import TARGETS

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module", autouse=True)
def _opened() -> None:
    """Use each target once: what it opens then, it keeps until its process ends."""
    for name, target in TARGETS.items():
        target.load()[0](kept(name)[0].read_bytes())


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What is refused is logged, thousands of times."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_are_well_and_have_one_outcome(name: str) -> None:
    run, _ = TARGETS[name].load()
    paths = kept(name)
    assert paths
    for number, path in enumerate(paths):
        try:
            outcome = repr(run(path.read_bytes()))
            assert number >= 10 or repr(run(path.read_bytes())) == outcome
        except Exception as error:
            error.add_note(f"run it again: python -m tools.fuzz {name} --replay {path}")
            raise


def test_every_corpus_has_a_target_and_is_small() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.glob("*/*")) < 1 << 20
