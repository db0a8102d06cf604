"""Limits of users: no order of operations gets a user beyond its limit, and none is charged for another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.sending.user_quota import (
    LEAST_PATTERN_BYTES,
    MAX_DEBT,
    PATTERN_BYTES,
    Quota,
    UserAccount,
    pattern_bytes,
)
from tests.core.material import examples


def opened(quota: Quota, uid: int = 1000, now: float = 0.0) -> UserAccount:
    account = quota.open(uid, now, 100)
    assert account is not None
    return account


def passed(quota: Quota, account: UserAccount, now: float, tries: int) -> int:
    """How many of so many messages may be published at one moment."""
    return sum(not quota.publish(account, now) for _ in range(tries))


@given(st.sampled_from([0.25, 1.0, 3.0, 7.0, 1000.0, 1e9]), st.lists(st.floats(0, 3), min_size=1, max_size=30))
@examples(300)
def test_publishing_succeeds_after_the_returned_wait(rate: float, pauses: list[float]) -> None:
    quota = Quota(rate)
    account, now = opened(quota), 1000.0
    for pause in pauses:
        now += pause
        wait = quota.publish(account, now)
        assert 0.0 <= wait <= 1 / rate
        if wait:
            # The resolution of the clock.
            now = max(now + wait * 1.000_001, now + 1e-9)
            assert quota.publish(account, now) == 0.0


#: by the rate: ``a+``: a client of user a opens, ``a+2``: within a limit of 2, ``a!2``: it is refused by this limit;
#: ``a-``: it closes; ``a:9/4``: of 9 messages 4 may be published; ``@2``: the time; ``rate:8``: another rate;
#: ``users=1``: users with an account
HISTORIES = [
    (0.0, "a+2 a+2 a!2 b+2 users=2 a- a+2 a!2 a+3 a!3 a!1 a- a- a- b- users=0 a+1 a!1"),
    (4.0, "a+1 a:9/4 a- users=1 a+1 a!1"),
    # One second of the rate may come at once, also after a long silence, and at least one message.
    *[(rate, f"a+ a:{2 * burst}/{burst} @1000000 a:{2 * burst}/{burst}") for rate, burst in ((10.0, 10), (1.5, 1))],
    (0.25, "a+ a:2/1 @4 a:2/1"),
    (0.0, "a+ a:10000/10000 a- users=0"),
    # All clients of a user share a rate, and keeping to it never waits.
    (4.0, f"a+ a+ b+ a:3/3 a:3/1 b:9/4 {' '.join(f'@{tick / 4} a:1/1' for tick in range(1, 100))}"),
    # An account stays until its rate has recovered.
    (4.0, "a+ @10 a:9/4 a- users=1 @10.5 a+ a:9/2 a- @11.25 b+ users=2 @11.5 c+ users=2 a+ a:9/4"),
    # Another rate holds at once.
    *[
        (before, f"a+ a:100/{before or 100:g} rate:{after} @100 a:100/{after or 100:g} @1000 a- users=0")
        for before, after in ((0.0, 4.0), (4.0, 16.0), (16.0, 4.0), (4.0, 0.0))
    ],
]


@pytest.mark.parametrize(("rate", "history"), HISTORIES)
def test_histories(rate: float, history: str) -> None:
    quota, now = Quota(rate), 0.0
    for word in history.split():
        uid = ord(word[0])
        account = quota.account(uid)
        if word[0] == "@":
            now = float(word[1:])
        elif word.startswith("rate:"):
            quota.rate = float(word[5:])
        elif word.startswith("users="):
            assert (word, len(quota)) == (word, int(word[6:]))
        elif word[1] in "+!":
            refused = quota.open(uid, now, int(word[2:] or 100)) is None
            assert (word, refused) == (word, word[1] == "!")
        else:
            assert account is not None
            if word[1] == "-":
                quota.close(account, now)
            else:
                tries, _, expected = word[2:].partition("/")
                assert (word, passed(quota, account, now, int(tries))) == (word, int(expected))


def test_time_beyond_a_round_is_taken_from_the_next_rounds() -> None:
    account = UserAccount(1000)
    assert account.left_of(7, 5.0) == 5.0
    account.seconds += 13.0
    assert [account.left_of(number, 5.0) for number in (7, 8, 9, 10)] == [-8.0, -3.0, 2.0, 5.0]
    account.charge(11, 5.0, 13.0)
    assert account.left_of(20, 5.0) == 5.0  # rounds in which it did nothing count too
    account.charge(20, 5.0, 2.0)
    account.charge(20, 5.0, 2.0)
    assert (account.left_of(20, 5.0), account.left_of(21, 5.0)) == (1.0, 5.0)  # what is not used is not saved
    account.charge(30, 5.0, 1e9)
    served = [number for number in range(30, 100) if account.left_of(number, 5.0) > 0.0]
    assert served[0] == 30 + MAX_DEBT + 1
    other = UserAccount(1001)
    other.charge(9, 5.0, 7.0)
    assert [other.left_of(number, 5.0) for number in (9, 10)] == [-2.0, 3.0]


def test_a_message_waits_behind_those_that_wait_already() -> None:
    quota = Quota(2.0)
    account = opened(quota)
    assert [quota.exceeds_rate(account, 0.0) for _ in range(3)] == [False, False, True]
    account.blocked["client"] = None
    assert quota.exceeds_rate(account, 100.0)
    del account.blocked["client"]
    assert [quota.exceeds_rate(account, 100.0) for _ in range(3)] == [False, False, True]
    quota.rate = 0.0
    account.blocked["client"] = None
    assert not quota.exceeds_rate(account, 100.0)


def test_clients_from_before_a_restart_are_always_charged() -> None:
    quota = Quota()
    assert [quota.reopen(1000).clients for _ in range(3)] == [1, 2, 3]
    assert [account.uid for account in quota] == [1000]
    assert quota.open(1000, 0.0, 1) is None


def test_the_memory_for_patterns_follows_their_number() -> None:
    assert [pattern_bytes(number) for number in (1, 65_536)] == [LEAST_PATTERN_BYTES, 65_536 * PATTERN_BYTES]
