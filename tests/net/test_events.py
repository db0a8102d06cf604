"""The table of events: sound in itself, explained in the catalog, and what the code says is in it."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from bccnd.net.events import EVENTS
from tests.support import ROOT

CATALOG = ROOT / "systemd/bccnd.catalog"
WHO = {"uid", "pid", "program"}


class Entry(NamedTuple):
    """One text of a catalog."""

    headers: dict[str, str]
    body: str


def read_catalog(text: str) -> dict[str, Entry]:
    """A catalog, by the letter of systemd's description: a line ``-- ID`` behind an empty one, headers, an empty line,
    the text. Lines that begin with # or ; are comments, wherever they stand."""
    entries: dict[str, Entry] = {}
    headers: dict[str, str] = {}
    body: list[str] = []
    found, in_headers, empty = "", False, True
    for line in text.split("\n"):
        if line.startswith(("#", ";")):
            continue
        begin = re.fullmatch(r"-- ([0-9a-f]{32})( [a-z_A-Z]+)?", line) if empty else None
        assert begin is not None or not line.startswith("-- "), f"no beginning of an entry: {line}"
        if begin is not None:
            found, in_headers, headers, body = begin[1], True, {}, []
            assert found not in entries, f"{found} twice"
            entries[found] = Entry(headers, "")
        elif found and in_headers and line:
            name, colon, value = line.partition(": ")
            assert colon, f"no header: {line}"
            assert name not in headers, f"{name} twice"
            headers[name] = value
        elif found and in_headers:
            in_headers = False
        elif found:
            body.append(line)
            entries[found] = Entry(headers, "\n".join(body).strip())
        else:
            assert not line, f"before the first entry: {line}"
        empty = not line
    return entries


@pytest.fixture(scope="module")
def catalog() -> dict[str, Entry]:
    return read_catalog(CATALOG.read_text())


def test_the_reader_of_catalogs_reads_what_systemd_does() -> None:
    one, two = "0" * 32, "1" * 32
    text = f"# a comment\n\n-- {one}\nSubject: a: b\nSupport: x\n\nfirst\n;hidden\n\nsecond\n\n"
    text += f"-- {two} de\nSubject: c\n\n-\n"
    assert read_catalog(text) == {
        one: Entry({"Subject": "a: b", "Support": "x"}, "first\n\nsecond"),
        two: Entry({"Subject": "c"}, "-"),
    }
    for wrong in (f"-- {one}x\n", f"x\n-- {one}\n", f"-- {one}\nSubject\n\nx", f"-- {one}\n\nx\n-- {two}\n\ny"):
        with pytest.raises(AssertionError):
            read_catalog(wrong)


def test_names_and_ids_are_sound_and_no_two_are_the_same() -> None:
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in EVENTS)
    assert all(re.fullmatch(r"[0-9a-f]{32}", event.id) for event in EVENTS.values())
    assert len({event.id for event in EVENTS.values()}) == len(EVENTS) >= 20
    assert {event.level for event in EVENTS.values()} <= {logging.INFO, logging.WARNING, logging.ERROR}


def test_ids_have_not_changed() -> None:
    """What operators and their tools search for by now."""
    known = {"ready": "5a9a553dfb5e49f7bc41421f1b95b4d9", "kernel_drops": "1173a348475248939e0a40b114a49ae9"}
    known |= {"start_refused": "7c6a2ad07e03478db77efa0592059d53", "client_slow": "9417fdf862004f55a7c3a57e757b41fe"}
    assert {name: EVENTS[name].id for name in known} == known


def test_every_event_is_explained_and_nothing_else_is(catalog: dict[str, Entry]) -> None:
    assert set(catalog) == {event.id for event in EVENTS.values()}


@pytest.mark.parametrize("name", EVENTS)
def test_an_explanation_is_complete_and_uses_only_what_is_always_there(name: str, catalog: dict[str, Entry]) -> None:
    event = EVENTS[name]
    entry = catalog[event.id]
    assert set(entry.headers) <= {"Subject", "Defined-By", "Support", "Documentation"}
    assert entry.headers["Defined-By"] == "bccnd"
    assert 10 < len(entry.headers["Subject"]) < 100
    assert len(entry.body) > 100
    assert max(map(len, entry.body.split("\n"))) <= 80
    used = set(re.findall(r"@([^@\s]+)@", entry.headers["Subject"] + entry.body))
    assert used <= {f"BCCND_{field.upper()}" for field in event.fields}


def calls() -> Iterator[tuple[str, str, set[str], bool]]:
    """Every place of the code that says an event: where, which one, with which fields, and whether those are all."""
    for path in sorted((ROOT / "bccnd").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "say":
                continue
            plain = isinstance(node.func.value, ast.Name) and node.func.value.id == "log"
            event = node.args[0 if plain else 1]
            assert isinstance(event, ast.Constant), f"{path.name}:{node.lineno}: which event?"
            known = {"count"} if not plain else set()
            for keyword in node.keywords:
                if keyword.arg is not None:
                    known.add(keyword.arg)
                elif isinstance(keyword.value, ast.Call):
                    assert ast.unparse(keyword.value.func) == "log.who"
                    known |= WHO | ({"identity"} if len(keyword.value.args) > 1 else set())
                else:
                    known |= set(EVENTS[str(event.value)].fields)
            all_here = not isinstance(node.args[1 if plain else 2], ast.Lambda)
            yield f"{path.name}:{node.lineno}", str(event.value), known, all_here


def test_what_the_code_says_is_in_the_table_and_the_other_way_round() -> None:
    said = {event for _, event, _, _ in calls()} | {"lines_lost"}
    assert said == set(EVENTS)


def test_an_event_is_said_with_the_fields_that_the_table_promises() -> None:
    wrong = [
        f"{where}: {event} without {field}"
        for where, event, fields, all_here in calls()
        for field in EVENTS[event].fields
        if all_here and field not in fields
    ]
    assert wrong == []


def test_fields_are_names_that_the_journal_takes() -> None:
    names = {field for _, _, fields, _ in calls() for field in fields}
    names |= {field for event in EVENTS.values() for field in event.fields}
    assert all(re.fullmatch(r"[a-z][a-z0-9_]{0,50}", name) for name in names)


def test_the_page_for_operators_lists_every_event_and_every_field() -> None:
    page = (ROOT / "docs/journal.md").read_text()
    events, fields = page.partition("## Events")[2], page.partition("## Fields")[2].partition("## Events")[0]
    listed = [
        name for row in re.findall(r"^\| (`[a-z_`, ]+`) \|", events, re.MULTILINE) for name in row.split("`")[1::2]
    ]
    assert sorted(name for name in listed if name != "BCCND_EVENT") == sorted(EVENTS)
    said = {field for _, _, names, _ in calls() for field in names}
    said |= {field for event in EVENTS.values() for field in event.fields}
    assert {f"BCCND_{field.upper()}" for field in said - {"trace"}} <= set(re.findall(r"BCCND_[A-Z_]+", fields))
    assert all(one in {event.id for event in EVENTS.values()} for one in re.findall(r"[0-9a-f]{32}", page))
