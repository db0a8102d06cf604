"""The reader of PromQL finds every name, or says that it cannot read it."""

from __future__ import annotations

import pytest

from tests.etc.promql import Matcher, Named, Selector, named


@pytest.mark.parametrize(
    ("text", "selectors", "labels"),
    [
        ("up", {"up{}"}, set()),
        ("1.5e3 + Inf > bool nan", set(), set()),
        ('rate(a_total{b="c", d!~"e|f",}[5m:1m] offset 1h)', {'a_total{b="c",d!~"e|f"}'}, set()),
        ("sum without (verdict, segment) (x) / ignoring(y) group_left(z) lan:x:rate5m", {"x{}", "lan:x:rate5m{}"},
         {"verdict", "segment", "y", "z"}),
        ("sum(x) by (y)", {"x{}"}, {"y"}),
        ("by + on", set(), set()),
        ("topk by (job) (3, a) and on () b unless c # d", {"a{}", "b{}", "c{}"}, {"job"}),
        ("""x{y='it\\'s "z"'} @ start()""", {'x{y="it\'s \\"z\\""}'}, set()),
        ("absent(up{job=~\"a.*\"}) or -vector(0)", {'up{job=~"a.*"}'}, set()),
    ],
)  # fmt: skip
def test_what_is_named(text: str, selectors: set[str], labels: set[str]) -> None:
    found = named(text)
    assert ({str(one) for one in found.selectors}, found.labels) == (selectors, labels)


@pytest.mark.parametrize("text", ['{job="x"}', "a ? b", 'a{b>"c"}', "a{b=c}", "sum by (x"])
def test_what_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(AssertionError):
        named(text)


def test_a_matcher_lets_through_what_prometheus_does() -> None:
    assert Matcher("a", "=", "b").fits("b")
    assert not Matcher("a", "=", "b").fits("bb")
    assert Matcher("a", "!=", "b").fits("c")
    assert Matcher("a", "=~", "b|c.*").fits("cd")
    assert not Matcher("a", "=~", "b").fits("bb")  # the whole of it
    assert not Matcher("a", "!~", "b|c").fits("c")


def test_the_same_selector_is_found_once() -> None:
    assert named("a + a{} + a") == Named({Selector("a")}, set())
