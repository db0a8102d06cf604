"""Channel forms and directed matching: the protocol's examples, and its rules once more, letter by letter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.wire import directed_targets
from tests.core import material
from tests.core.material import examples, reason_of

#: target, srcs that it reaches | and that it does not: the protocol text's own examples, and then edges
EXAMPLES = """
host/name/12345: host/name/12345 | host/name/12345/4711 host/name host/name/123456
host/name/12345/*: host/name/12345 host/name/12345/4711 host/name/12345/4711/9012 | host/name/123456
host/name/12345/4711: host/name/12345/4711 | host/name/12345 host/name/12345/4711/9012
host/name: host/name/12345 host/name | host/names/1 host
host/name/*: host/name/12345 host/name | host/names/1
host: host/any/1 host | hosts/any/1
host/relay-1/12345/w-3: host/relay-1/12345/w-3 host/relay-1/12345/w-3/99 | host/relay-1/12345
relay01/cardsys-relay: relay01/cardsys-relay/12345/4711 |
12345: 12345 | 12345/a/1
12345/*: 12345/a/1 |
host/: host//1 | host host/name/1
*: | host/name/1
host*: | host/name/1
host/*/1: | host/name/1
host/*/*: | host/name/1
host/1*: | host/1
host/-1: host/-1/2 |
host/1.0: host/1.0/2 |
host/0x1: host/0x1/2 |
host/007: | host/007/2 host/7
?: | ?
?/*: | ?
"""


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


def test_examples_of_the_text_match() -> None:
    for line in EXAMPLES.strip().splitlines():
        target, srcs = line.split(":")
        reached, missed = map(str.split, srcs.split("|"))
        for src in reached + missed:
            assert directed_targets.matches(target.encode(), src.encode()) is (src in reached), (target, src)
            assert literal_match(target, src) is (src in reached), (target, src)


TAILS = st.sampled_from([b"", b"/*", b"/1", b"/1/*", b"/", b"1"]), st.sampled_from([b"", b"/1", b"/a/1", b"1"])
RELATIVES = st.builds(lambda stem, target, src: (stem + target, stem + src), names(), *TAILS)


@given(RELATIVES | st.tuples(names(b"a1/*?\xb2\xb9"), names()))
@examples(1000)
def test_matching_follows_the_rules_and_digits_are_ascii(both: tuple[bytes, bytes]) -> None:
    target, src = both
    assert directed_targets.matches(target, src) == literal_match(target.decode("latin-1"), src.decode("latin-1"))


@given(names(), names())
@examples(500)
def test_prefixes_of_a_src_are_the_wildcards_that_match_it(value: bytes, src: bytes) -> None:
    prefixes = directed_targets.prefixes(src)
    assert len(set(prefixes)) == len(prefixes) == src.count(b"/") + 1
    assert prefixes[-1] == src
    if src != b"?":
        for one in (value, *prefixes):
            assert (one in prefixes) == directed_targets.matches(one + b"/*", src)


def test_the_first_byte_decides_the_form() -> None:
    names = {directed_targets.PLAIN: "plain", directed_targets.ALL: "all", directed_targets.DIRECTED: "directed"}
    channels = {
        directed_targets.PLAIN: (b"a", b"a!", b"a/!", b"/!"),
        directed_targets.ALL: (b"!",),
        directed_targets.DIRECTED: (b"!a", b"!!", b"!/"),
    }
    for form, chans in channels.items():
        assert directed_targets.FORM_NAMES[form] == names[form]
        for chan in chans:
            assert directed_targets.form_of(chan) == form
            assert directed_targets.is_directed(chan) == (form == directed_targets.DIRECTED)


@given(names())
@examples(300)
def test_targets_of_the_unknown_sender_and_the_bus_are_refused(target: bytes) -> None:
    assert directed_targets.target_of(b"!" + target) == target
    assert reason_of(directed_targets.check, target) == ("bad_target" if target[:1] in (b"?", b"/") else "")
