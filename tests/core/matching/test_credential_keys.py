"""Secret messages: a key reaches only clients that it names, and all of those that subscribed to it."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from bccnd.core.matching.credential_keys import PREFIX, is_secret, own_patterns
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.matching.routes import Routes
from tests.core import naive
from tests.core.material import examples


class Someone(NamedTuple):
    gid: int
    uid: int
    pid: int


#: credentials that share a part, or whose numbers begin alike
MOST = (2**32 - 2, 2**32 - 2, 2**31 - 1)
NUMBERS = ((100, 1000, 7), (100, 1000, 77), (100, 1001, 7), (10, 1000, 7), (0, 0, 1), (0, 1000, 0), MOST)
PEOPLE = [Someone(*numbers) for numbers in NUMBERS]


FIELDS_NUMBERS = sorted({b"%d" % number for someone in PEOPLE for number in someone})
SLY = [b"*", b">", b"+", b"1*", b"007", b"00", b"-1", b"+7", b" 7", b"7 ", b"0x7", b"\xb2", b"!", b"cred", b"7.0"]
#: fields of a credential: numbers, nothing, and text that is no number
FIELDS = st.one_of(st.sampled_from([b""] * 4 + FIELDS_NUMBERS + FIELDS_NUMBERS), st.sampled_from(SLY))
NESTED = st.sampled_from([b"!/cred/100/1000/7/x", b"!/cred////", b"///", b"*/*/*/*", b"7/x", b"/", b""])
#: what follows, among it what looks like the beginning again
RESTS = st.one_of(naive.patterns("path"), naive.keys("path"), NESTED)
WHOLE = st.builds(lambda parts, rest: PREFIX + b"/".join([*parts, rest]), st.tuples(FIELDS, FIELDS, FIELDS), RESTS)
SOME = st.lists(st.one_of(FIELDS, RESTS), max_size=5).map(lambda parts: PREFIX + b"/".join(parts))
#: keys and patterns that begin like secret ones, most of them with all their parts
TEXTS = st.one_of(WHOLE, WHOLE, WHOLE, SOME)


def parts_of(text: bytes) -> tuple[list[bytes], bytes] | None:
    """Credentials and rest, found in a way of its own."""
    slashes = [at for at in range(len(text)) if text[at : at + 1] == b"/"]
    if len(slashes) < 5 or text[: slashes[1] + 1] != b"!/cred/":
        return None
    found = [text[slashes[n] + 1 : slashes[n + 1]] for n in (1, 2, 3)]
    if any(byte not in b"0123456789" for field in found for byte in field):
        return None
    return found, text[slashes[4] + 1 :]


def names(key: bytes, someone: Someone) -> bool:
    """Whether no field of a key has another credential."""
    parts = parts_of(key)
    assert parts is not None
    return all(field in (b"", str(own).encode()) for field, own in zip(parts[0], someone, strict=True))


def listening(*subscriptions: tuple[Someone, bytes]) -> Routes[Someone]:
    """As the bus does it: of each pattern the own ones are held."""
    routes: Routes[Someone] = Routes(DIALECTS["path"])
    for someone in PEOPLE:
        routes.join(someone, b"h/p/1")
    for someone, pattern in subscriptions:
        for one in own_patterns(pattern, *someone) or ():
            routes.subscribe(someone, one)
    return routes


PATTERNS = st.lists(st.tuples(st.sampled_from(PEOPLE), TEXTS), max_size=8)


@given(PATTERNS, st.lists(TEXTS, min_size=1, max_size=8))
@example([(PEOPLE[0], PREFIX + b"////")], [PREFIX + b"100/1000/77/x"])
@example([(PEOPLE[0], PREFIX + b"///*")], [PREFIX + b"0/0/1/x", PREFIX + b"100/1000/7/x"])
@example([(PEOPLE[0], PREFIX + b"///!/cred/0/0/1/")], [PREFIX + b"0/0/1/!/cred/0/0/1/x", PREFIX + b"///!/cred/0/0/1/x"])
@examples(400)
def test_a_key_reaches_just_the_subscribers_that_it_names(held: list[tuple[Someone, bytes]], keys: list[bytes]) -> None:
    routes = listening(*held)
    for key in keys:
        receivers, parts = routes.local(key).all, parts_of(key)
        assert is_secret(key) == (parts is not None)
        assert all(parts and names(key, someone) for someone in receivers)
        assert set(receivers) == {
            someone
            for someone, pattern in held
            if parts and names(key, someone) and asks_for(parts_of(pattern), parts, someone)
        }


def asks_for(pattern: tuple[list[bytes], bytes] | None, key: tuple[list[bytes], bytes], someone: Someone) -> bool:
    if pattern is None or any(field not in (b"", b"%d" % own) for field, own in zip(pattern[0], someone, strict=True)):
        return False
    same = all(wanted in (b"", there) for wanted, there in zip(pattern[0], key[0], strict=True))
    return same and naive.matches("path", b"x/" + pattern[1], b"x/" + key[1])


@given(TEXTS, st.sampled_from(PEOPLE))
@examples(300)
def test_own_patterns_are_secret_ones_of_their_subscriber(pattern: bytes, someone: Someone) -> None:
    own, parts = own_patterns(pattern, *someone), parts_of(pattern)
    assert (own is None) == (parts is None or not names(pattern, someone))
    if own is not None and parts is not None:
        assert len(set(own)) == len(own) == 2 ** parts[0].count(b"")
        assert all(is_secret(one) and names(one, someone) for one in own)
        # What is asked for in other words is not asked for twice: these stand for themselves, or are among them.
        assert all(set(own_patterns(one, *someone) or ()) <= set(own) for one in own)
