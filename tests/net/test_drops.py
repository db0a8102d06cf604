"""The inventory of what is dropped: complete by the code's own lists, and the same in metrics, log and runbook."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from bccnd.core.counters import DROP_REASONS, END_REASONS, ERROR_REASONS, REFUSE_REASONS
from bccnd.core.verdicts import LAST_ACCEPTED, NAMES
from bccnd.gateways.names import REASONS as GATEWAY_REASONS
from bccnd.net import log
from bccnd.net.bus import AFTER_REFUSAL
from bccnd.net.drops import DROPS, SAID_WHERE_IT_FALLS, Drop, counted, rows, serious
from bccnd.net.http import REASONS as VISITORS
from bccnd.net.page_gather import LOST
from bccnd.net.recorders import RECORDED
from tests.net.pages import Observed
from tests.support import ROOT

RUNBOOK: Final = ROOT / "docs/runbook.md"
#: families that begin as `bccnd_` and end as if they counted drops, and why they count none
NO_DROPS: Final = {
    "messages_lost": "it never came; nobody here threw it away",
    "source_restarts": "a source has begun anew, and lost nothing by it",
    "source_deaths": "a source has fallen silent, of which clients are told",
    "config_reloads": "a configuration was refused, and the one before is in force",
    "publishers_held": "a publisher waits, and loses nothing by it",
    "gateway_starts": "a gateway was started",
}
#: how families are called that count what falls
FALLS: Final = re.compile(
    r"drop|refus|error|lost|evict|forgot|conflict|ended|not_kept|unwatch|remov|torn|aside|fail|gap"
)


def of(family: str) -> set[str]:
    return {drop.name for drop in DROPS if drop.family == family}


def test_every_reason_that_the_code_has_stands_in_the_table() -> None:
    assert of("datagrams") == set(NAMES[LAST_ACCEPTED + 1 :])
    assert of("deliveries_dropped") == set(DROP_REASONS)
    assert of("clients_refused") == set(REFUSE_REASONS)
    assert of("clients_ended") == set(END_REASONS)
    assert of("client_errors") == set(ERROR_REASONS)
    assert of("visitors_refused") == set(VISITORS)
    assert of("log_lines_dropped") == set(log.lines_dropped)
    assert of("gateway_dropped") == set(GATEWAY_REASONS)
    assert {(drop.family, drop.name) for drop in DROPS if drop.family.startswith("recorder_")} == set(RECORDED)


def calls(folder: str) -> Iterator[tuple[str, ast.Call]]:
    for path in sorted((ROOT / "bccnd" / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield path.name, node


def constants(node: ast.expr) -> set[str]:
    """The words that an expression may be."""
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def test_reasons_for_refused_frames_are_those_of_the_code() -> None:
    found: set[str] = set()
    for path, call in [*calls("net"), *calls("core")]:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name == "refuse" and len(call.args) == 3:
            found |= constants(call.args[1])
        elif name == "BadMessage" and path in ("egress.py", "identity.py", "signatures.py") and call.args:
            found |= constants(call.args[0])
    tree = ast.parse((ROOT / "bccnd/core/frames.py").read_text())
    (read,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "read"]
    found |= {
        word
        for node in ast.walk(read)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "BadFrame"
        for word in constants(node.args[0])
    }
    # These are given to `refuse` by name.
    found |= {"too_many_subscriptions", "not_permitted", "reserved_key", "send_failed", "bad_channel", "bad_target"}
    assert found == set(ERROR_REASONS)


def test_reasons_that_gateways_count_by_are_those_of_their_list() -> None:
    found: set[str] = set()
    for _, call in calls("gateways"):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "drop" and call.args:
            found |= constants(call.args[0])
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "end" and call.args:
            found |= constants(call.args[0]) - {""}
    assert found
    assert found <= set(GATEWAY_REASONS)


def test_what_the_log_says_was_dropped_stands_in_the_table() -> None:
    names = {drop.name for drop in DROPS}
    said: set[str] = set()
    for folder in ("", "net", "gateways", "recorder"):
        for _, call in calls(folder):
            for keyword in call.keywords:
                if keyword.arg == "drop" and isinstance(keyword.value, ast.Constant):
                    said.add(str(keyword.value.value))
    assert {"send_errors", "lines_lost", "recorder_tap_gap_records", "identity_conflicts"} - {"lines_lost"} <= said
    assert said <= names


def test_rows_are_sound() -> None:
    twice = [key for key, count in Counter((drop.family, drop.name) for drop in DROPS).items() if count > 1]
    assert twice == []
    for drop in DROPS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", drop.name), drop
        assert re.fullmatch(r"[A-Z].*[^.]\.", drop.means), drop
        assert re.fullmatch(r"[A-Z].*[^.]\.", drop.remedy), drop
        assert drop.label in {"", "verdict", "reason", "cause"}, drop
        assert bool(drop.label) != (drop.name == drop.family), drop


def test_serious_frames_are_said_as_such_and_those_alone() -> None:
    grave = {drop.name for drop in DROPS if drop.family == "client_errors" and drop.serious}
    assert grave == set(AFTER_REFUSAL) | {"not_permitted"}
    assert {drop.family for drop in DROPS} >= SAID_WHERE_IT_FALLS


def key(drop: Drop) -> tuple[str, frozenset[tuple[str, str]]]:
    return f"{drop.family}_total", frozenset({(drop.label, drop.name)} if drop.label else ())


def test_what_is_counted_is_what_a_scrape_shows_name_by_name(busy: Observed) -> None:
    samples = busy.samples()
    places: Counter[tuple[str, str]] = Counter()
    for one in counted(busy):
        drop = one.drop
        if drop.family.startswith("recorder_"):  # the recorder's own listener has these
            continue
        wanted = {(drop.label, drop.name)} if drop.label else set()
        where = {("segment", one.where), ("gateway", one.where)} if one.where else set()
        found = [
            value
            for (name, pairs), value in samples.items()
            if name == f"{drop.family}_total" and wanted <= pairs and (not where or where & pairs)
        ]
        if drop.family == "send_errors":  # a sample for each error that there was
            assert sum(found) == one.count
        else:
            assert found == [one.count], one
        places[drop.family, drop.name] += 1
    ours = {(drop.family, drop.name) for drop in DROPS if not drop.family.startswith("recorder_")}
    assert set(places) == ours


def test_a_family_that_counts_what_falls_has_its_place_in_the_table(busy: Observed) -> None:
    families = {name.removeprefix("bccnd_") for name in busy.families() if name.startswith("bccnd_")}
    known = {drop.family for drop in DROPS}
    counters = {
        name.removeprefix("bccnd_")
        for name, family in busy.families().items()
        if family.type == "counter" and name.startswith("bccnd_")
    }
    strangers = {name for name in counters if FALLS.search(name)} - known - set(NO_DROPS)
    assert strangers == set()
    assert set(NO_DROPS) <= families
    labels = {drop.family: {one.name for one in DROPS if one.family == drop.family} for drop in DROPS if drop.label}
    for name, pairs in busy.samples():
        family = name.removesuffix("_total")
        if name.endswith("_total") and family in labels and family != "datagrams":
            (label,) = {drop.label for drop in DROPS if drop.family == family}
            assert dict(pairs)[label] in labels[family]


def test_a_tally_leaves_to_others_what_they_tell_themselves(busy: Observed) -> None:
    told = {(family, name) for family, name, _ in rows(counted(busy))}
    assert ("datagrams", "looped") in told
    assert not {family for family, _ in told} & {"gateway_dropped", "recorder_dropped_records"}
    assert {one.drop.serious for one in serious(counted(busy))} == {True}
    assert all(one.count for one in serious(counted(busy)))


def entries() -> dict[str, str]:
    part = RUNBOOK.read_text().partition("## What is dropped, by name")[2].partition("\n## ")[0]
    found = re.findall(r"^### (\S+)\n(.*?)(?=^### |\Z)", part, re.MULTILINE | re.DOTALL)
    assert len(found) == len({name for name, _ in found})
    return dict(found)


def test_the_runbook_has_every_name_and_no_other() -> None:
    assert list(entries()) == sorted({drop.name for drop in (*DROPS, LOST)})


@pytest.mark.parametrize("drop", [*DROPS, LOST], ids=lambda drop: f"{drop.family}/{drop.name}")
def test_an_entry_of_the_runbook_says_what_the_page_says_and_where_to_look(drop: Drop) -> None:
    text = " ".join(entries()[drop.name].split())
    label = f'{{{drop.label}="{drop.name}"}}' if drop.label else ""
    assert f"bccnd_{drop.family}_total{label}" in text
    assert drop.means in text
    assert drop.remedy in text
    assert "*Look at:* " in text
    assert "*Do:* " in text
