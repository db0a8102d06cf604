"""Channel forms and directed matching: the protocol's examples, and its rules once more, letter by letter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import targets
from tests.core import material
from tests.core.material import examples, reason_of

#: target, src, whether a message for the one reaches the other; the first half are the protocol text's own examples
EXAMPLES = [
    (b"host/name/12345", b"host/name/12345", True),
    (b"host/name/12345", b"host/name/12345/4711", False),
    (b"host/name/12345", b"host/name", False),
    (b"host/name/12345", b"host/name/123456", False),
    (b"host/name/12345/*", b"host/name/12345", True),
    (b"host/name/12345/*", b"host/name/12345/4711", True),
    (b"host/name/12345/*", b"host/name/12345/4711/9012", True),
    (b"host/name/12345/*", b"host/name/123456", False),
    (b"host/name/12345/4711", b"host/name/12345/4711", True),
    (b"host/name/12345/4711", b"host/name/12345", False),
    (b"host/name/12345/4711", b"host/name/12345/4711/9012", False),
    (b"host/name", b"host/name/12345", True),
    (b"host/name", b"host/name", True),
    (b"host/name", b"host/names/1", False),
    (b"host/name", b"host", False),
    (b"host/name/*", b"host/name/12345", True),
    (b"host/name/*", b"host/name", True),
    (b"host/name/*", b"host/names/1", False),
    (b"host", b"host/any/1", True),
    (b"host", b"host", True),
    (b"host", b"hosts/any/1", False),
    (b"host/cardsys-relay/12345/worker-3", b"host/cardsys-relay/12345/worker-3", True),
    (b"host/cardsys-relay/12345/worker-3", b"host/cardsys-relay/12345/worker-3/99", True),
    (b"host/cardsys-relay/12345/worker-3", b"host/cardsys-relay/12345", False),
    (b"relay01/cardsys-relay", b"relay01/cardsys-relay/12345/4711", True),
    # A target of digits alone is one process that calls itself so, and no host.
    (b"12345", b"12345", True),
    (b"12345", b"12345/a/1", False),
    (b"12345/*", b"12345/a/1", True),
    # Nothing behind the last separator is no number: a wildcard, whose prefix ends in the separator.
    (b"host/", b"host", False),
    (b"host/", b"host/name/1", False),
    (b"host/", b"host//1", True),
    # A star is only special behind a separator, and only once.
    (b"*", b"host/name/1", False),
    (b"host*", b"host/name/1", False),
    (b"host/*/1", b"host/name/1", False),
    (b"host/*/*", b"host/name/1", False),
    (b"host/1*", b"host/1", False),
    # Digits are ASCII digits, without sign or point.
    (b"host/-1", b"host/-1/2", True),
    (b"host/1.0", b"host/1.0/2", True),
    (b"host/0x1", b"host/0x1/2", True),
    (b"host/007", b"host/007/2", False),
    (b"host/007", b"host/7", False),
    # Who does not know its own name is nobody's target.
    (b"?", b"?", False),
    (b"?/*", b"?", False),
]


def literal_match(target: str, src: str) -> bool:
    """The text's rules in the text's order: classification 1, 2, 3, then the match rule."""
    if src == "?":
        return False
    ends_in_wildcard = len(target) >= 2 and target[-2] == "/" and target[-1] == "*"
    if ends_in_wildcard:
        wildcard, value = True, target[0:-2]
    else:
        last_token = ""
        for char in target:
            last_token = "" if char == "/" else last_token + char
        all_digits = last_token != ""
        for char in last_token:
            if char not in "0123456789":
                all_digits = False
        wildcard, value = not all_digits, target
    if src == value:
        return True
    return wildcard and src[: len(value) + 1] == value + "/"


def names() -> st.SearchStrategy[bytes]:
    """Targets, srcs and prefixes that often have something to do with each other."""
    tokens = st.sampled_from([b"a", b"b", b"ab", b"1", b"12", b"", b"*", b"?", b"a1", b"1*"])
    return st.one_of(st.lists(tokens, min_size=1, max_size=4).map(b"/".join), material.over(b"a1/*?", 1, 6))


@pytest.mark.parametrize(("target", "src", "expected"), EXAMPLES)
def test_the_examples_match_as_the_text_says(target: bytes, src: bytes, expected: bool) -> None:
    assert targets.matches(target, src) is expected


@given(names(), names())
@examples(500)
def test_matching_follows_the_rules_by_the_letter(target: bytes, src: bytes) -> None:
    assert targets.matches(target, src) == literal_match(target.decode("ascii"), src.decode("ascii"))


@given(names(), st.sampled_from([b"", b"/*", b"/1", b"/1/*", b"/", b"1"]), st.sampled_from([b"", b"/1", b"/a/1", b"1"]))
@examples(500)
def test_matching_follows_the_rules_among_relatives(stem: bytes, target_tail: bytes, src_tail: bytes) -> None:
    target, src = stem + target_tail, stem + src_tail
    assert targets.matches(target, src) == literal_match(target.decode("ascii"), src.decode("ascii"))


@given(material.over(b"a1/*\xb2\xb9", 1, 5), material.over(b"a1/", 1, 5))
@examples(300)
def test_digits_of_other_alphabets_are_no_digits(target: bytes, src: bytes) -> None:
    assert targets.matches(target, src) == literal_match(target.decode("latin-1"), src.decode("latin-1"))


@given(names(), names())
@examples(500)
def test_prefixes_of_a_src_are_just_the_wildcard_values_that_take_it(value: bytes, src: bytes) -> None:
    if src != b"?":
        assert (value in targets.prefixes(src)) == targets.matches(value + b"/*", src)


@given(names())
@examples(300)
def test_every_prefix_of_a_src_takes_it_and_is_named_once(src: bytes) -> None:
    prefixes = targets.prefixes(src)
    assert len(set(prefixes)) == len(prefixes) == src.count(b"/") + 1
    assert prefixes[-1] == src
    if src != b"?":
        assert all(targets.matches(prefix + b"/*", src) for prefix in prefixes)


@pytest.mark.parametrize(
    ("chan", "form"),
    [
        (b"!", targets.ALL),
        (b"!a", targets.DIRECTED),
        (b"!!", targets.DIRECTED),
        (b"!/", targets.DIRECTED),
        (b"a", targets.PLAIN),
        (b"a!", targets.PLAIN),
        (b"a/!", targets.PLAIN),
        (b"/!", targets.PLAIN),
    ],
)
def test_the_first_byte_decides_the_form(chan: bytes, form: int) -> None:
    assert targets.form_of(chan) == form
    assert targets.is_directed(chan) == (form == targets.DIRECTED)


def test_every_form_has_its_name() -> None:
    assert [targets.FORM_NAMES[form] for form in (targets.PLAIN, targets.ALL, targets.DIRECTED)] == [
        "plain",
        "all",
        "directed",
    ]


@given(names())
@examples(200)
def test_a_directed_channel_is_the_mark_and_its_target(target: bytes) -> None:
    assert targets.target_of(b"!" + target) == target


@given(names())
@examples(300)
def test_targets_of_nobody_and_of_the_bus_are_refused_and_no_others(target: bytes) -> None:
    assert reason_of(targets.check, target) == ("bad_target" if target[:1] in (b"?", b"/") else "")
