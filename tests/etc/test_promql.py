"""The reader of PromQL finds every name, or says that it cannot read it."""

from __future__ import annotations

import pytest

from tests.etc.promql import Matcher, Named, Selector, named


@pytest.mark.parametrize(
    ("text", "selectors", "labels"),
    [
        ("1.5e3 + Inf > bool nan", set(), set()),
        ('rate(a_total{b="c", d!~"e|f",}[5m:1m] offset 1h)', {'a_total{b="c",d!~"e|f"}'}, set()),
        ("sum without (verdict, segment) (x) / ignoring(y) group_left(z) lan:x:rate5m", {"x{}", "lan:x:rate5m{}"},
         {"verdict", "segment", "y", "z"}),
        ("topk by (job) (3, a) and on () b unless c # d", {"a{}", "b{}", "c{}"}, {"job"}),
        ('label_replace(up{job=~"a.*"}, "x", "y", "z", "") or -vector(0)', {'up{job=~"a.*"}'}, set()),
    ],
)  # fmt: skip
def test_what_is_named(text: str, selectors: set[str], labels: set[str]) -> None:
    found = named(text)
    assert ({str(one) for one in found.selectors}, found.labels) == (selectors, labels)
    assert named("a + a{} + a") == Named({Selector("a")}, set())


@pytest.mark.parametrize("text", ['{job="x"}', 'a{b>"c"}', "a{b=c}"])
def test_what_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(AssertionError):
        named(text)


def test_a_matcher_lets_through_what_prometheus_does() -> None:
    found = [
        Matcher("a", sign, "b|c.*").fits(value) for sign in ("=", "!=", "=~", "!~") for value in ("b|c.*", "cd", "bb")
    ]
    assert found == [True, False, False, False, True, True, False, True, False, True, False, True]
