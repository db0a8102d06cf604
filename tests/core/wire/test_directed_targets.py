"""Directed matching: the rules of the protocol once more, letter by letter; its examples are in test_vectors.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.wire import directed_targets
from tests.core import material
from tests.core.material import examples, reason_of


def literal_match(target: str, src: str) -> bool:
    """The text's rules in the text's order: classification 1, 2, 3, then the match rule."""
    if src == "?":
        return False
    if target.endswith("/*"):
        wildcard, value = True, target[:-2]
    else:
        last_token = target.rpartition("/")[2]
        wildcard, value = not last_token or bool(set(last_token) - set("0123456789")), target
    return src == value or (wildcard and src.startswith(value + "/"))


def names(alphabet: bytes = b"a1/*?") -> st.SearchStrategy[bytes]:
    """Targets, srcs and prefixes that often have something to do with each other."""
    tokens = st.sampled_from([b"a", b"b", b"ab", b"1", b"12", b"", b"*", b"?", b"a1", b"1*"])
    return st.one_of(st.lists(tokens, min_size=1, max_size=4).map(b"/".join), material.over(alphabet, 1, 6))


TAILS = st.sampled_from([b"", b"/*", b"/1", b"/1/*", b"/", b"1"]), st.sampled_from([b"", b"/1", b"/a/1", b"1"])
RELATIVES = st.builds(lambda stem, target, src: (stem + target, stem + src), names(), *TAILS)


@given(RELATIVES | st.tuples(names(b"a1/*?\xb2\xb9"), names()))
@examples(1000)
def test_matching_follows_the_rules_and_digits_are_ascii(both: tuple[bytes, bytes]) -> None:
    target, src = both
    assert directed_targets.matches(target, src) == literal_match(target.decode("latin-1"), src.decode("latin-1"))


@given(names())
@examples(300)
def test_targets_of_the_unknown_sender_and_the_bus_are_refused(target: bytes) -> None:
    assert directed_targets.target_of(b"!" + target) == target
    assert reason_of(directed_targets.check, target) == ("bad_target" if target[:1] in (b"?", b"/") else "")
