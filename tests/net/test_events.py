"""The table of events: sound in itself, explained in the catalog, and used by the code as it promises."""

from __future__ import annotations

import ast
import logging
import re
from functools import cache
from pathlib import Path

from bccnd.log.events import EVENTS
from tests.support import ROOT

WHO = {"uid", "pid", "program"}


def test_names_ids_and_fields_are_sound() -> None:
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in EVENTS)
    assert all(re.fullmatch(r"[0-9a-f]{32}", event.id) for event in EVENTS.values())
    assert len({event.id for event in EVENTS.values()}) == len(EVENTS) >= 20
    assert {event.level for event in EVENTS.values()} <= {logging.INFO, logging.WARNING, logging.ERROR}
    names = {field for _, _, fields in said() for field in fields}
    names |= {field for event in EVENTS.values() for field in event.fields}
    assert all(re.fullmatch(r"[a-z][a-z0-9_]{0,50}", name) for name in names)


def test_ids_have_not_changed() -> None:
    """Operators and their tools search for these."""
    known = {"ready": "5a9a553dfb5e49f7bc41421f1b95b4d9", "kernel_drops": "1173a348475248939e0a40b114a49ae9"}
    known |= {"start_refused": "7c6a2ad07e03478db77efa0592059d53", "client_slow": "9417fdf862004f55a7c3a57e757b41fe"}
    assert {name: EVENTS[name].id for name in known} == known


def test_the_catalog_explains_every_event_with_fields_that_it_always_has() -> None:
    text = "\n\n" + re.sub(r"^[#;].*\n", "", (ROOT / "systemd/bccnd.catalog").read_text(), flags=re.MULTILINE)
    _, *parts = re.split(r"(?<=\n\n)-- ([0-9a-f]{32})\n", text)
    entries = dict(zip(parts[::2], parts[1::2], strict=True))
    assert len(parts) == 2 * len(entries)
    assert set(entries) == {event.id for event in EVENTS.values()}
    for name, event in EVENTS.items():
        head, _, body = entries[event.id].partition("\n\n")
        headers = dict(line.split(": ", 1) for line in head.split("\n"))
        assert headers["Defined-By"] == "bccnd", name
        assert headers["Subject"], name
        assert body.strip(), name
        assert not re.search(r"^-- ", body, re.MULTILINE), name
        used = set(re.findall(r"@([^@\s]+)@", entries[event.id]))
        assert used <= {f"BCCND_{field.upper()}" for field in event.fields}, name


def fields_of(path: Path, call: ast.Call, func: ast.Attribute) -> tuple[str, str, set[str]]:
    plain = ast.unparse(func.value) == "log"
    event = call.args[0 if plain else 1]
    assert isinstance(event, ast.Constant), f"{path.name}:{call.lineno}: which event?"
    known: set[str] = set()
    if not plain or any(keyword.arg == "about" for keyword in call.keywords):
        known.add("count")
    for keyword in call.keywords:
        if keyword.arg is not None:
            known |= {keyword.arg} - {"about"}
        elif isinstance(keyword.value, ast.Call):
            assert ast.unparse(keyword.value.func) == "log.peer_fields"
            known |= WHO | ({"identity"} if len(keyword.value.args) > 1 else set())
        else:
            known |= set(EVENTS[str(event.value)].fields)
    return f"{path.name}:{call.lineno}", str(event.value), known


@cache
def said() -> list[tuple[str, str, set[str]]]:
    """Every call that logs an event: where, which one, with which fields."""
    return [
        fields_of(path, call, call.func)
        for path in sorted((ROOT / "bccnd").rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("say", "event")
        and ast.unparse(call.func.value) != "self"
    ]


def test_the_code_logs_every_event_with_the_fields_that_the_table_promises() -> None:
    assert {event for _, event, _ in said()} | {"lines_lost"} == set(EVENTS)
    wrong = [
        f"{where}: {event} without {field}"
        for where, event, fields in said()
        for field in EVENTS[event].fields
        if field not in fields
    ]
    assert wrong == []


def test_the_page_for_operators_lists_every_event_and_every_field() -> None:
    page = (ROOT / "docs/journal.md").read_text()
    assert [name for name in EVENTS if f"`{name}`" not in page] == []
    fields = {field for _, _, names in said() for field in names} - {"trace"}
    assert [name for name in fields if f"BCCND_{name.upper()}" not in page] == []
