"""A YAML document: its values, the line of each of them, and what is refused."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.config.document import Document
from bccnd.errors import ConfigError, Fault
from tests.support import examples

PATH = "/etc/bccnd/bccnd.yaml"


def line_of(text: str, *where: int | str) -> int:
    return Document(text, PATH).fault(where, "reason", "remedy").line


def fault_of(text: str) -> Fault:
    """The only thing wrong with a text that is no document."""
    with pytest.raises(ConfigError) as caught:
        Document(text, PATH)
    (fault,) = caught.value.faults
    assert (fault.file, fault.path) == (PATH, "")
    assert fault.reason
    assert fault.remedy
    return fault


def test_values_are_those_of_yaml() -> None:
    for empty in ("", "\n", "# nothing\n", "---\n", "null", "~", "{}", "\ufeff"):
        assert Document(empty, PATH).data == {}
    text = "a: 1\nb: [x, 2.5, true, null]\nc: {d: 0660, e: '7'}\n1: 2001-02-03\nf: |\n  text\n  more\n"
    assert Document(text, PATH).data == yaml.safe_load(text)
    assert Document(text, PATH).data["c"] == {"d": 0o660, "e": "7"}
    document = Document("a: &x [1, {b: 2}]\nc: *x\nd: {e: *x}\n", PATH)
    assert document.data["c"] == document.data["d"]["e"] == [1, {"b": 2}]


SAFE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("abc é:#-\n'\"", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=examples(150))
@given(st.dictionaries(st.text("abcde", min_size=1, max_size=3), SAFE, max_size=4), st.booleans())
def test_what_yaml_writes_is_read_and_each_value_has_its_line(data: dict[str, object], flow: bool) -> None:
    text = yaml.safe_dump(data, allow_unicode=True, default_flow_style=flow, sort_keys=False)
    document = Document(text, PATH)
    assert document.data == data
    if not flow:
        lines = text.splitlines()
        for key in data:
            line = lines[document.fault((key,), "", "").line - 1]
            # A key that YAML would take for something else stands in quotes.
            assert line.lstrip("'\"? ").startswith(key)


TEXT = """\
# a comment
bus:
  path: /a
  sockets:
  - path: /b
    mode: 0660

  - {path: /c,
     mode: 0600}
  - # what follows
    path: /d
access:
  - publish: [a, b,
              c]
    subscribe:
    - d
    -
      e
1: one
"quoted key": two
? long
: three
text: |
  of
  several lines
"""
#: places and their lines; what does not stand there is missing from what does
LINES = """
 0, bus 2, bus.path 3, bus.sockets 4, bus.sockets[0] 5, bus.sockets[0].path 5, bus.sockets[0].mode 6, bus.sockets[1] 8,
bus.sockets[1].mode 9, bus.sockets[2].path 11, access[0] 13, access[0].publish[0] 13, access[0].publish[2] 14,
access[0].subscribe[0] 16, access[0].subscribe[1] 18, 1 19, quoted key 20, long 21, text 23,
bus.group 2, bus.sockets[0].group 5, bus.sockets[7] 4, bus.path.deeper 3, bus[0] 2, nothing 0, nothing.below 0
"""


def test_a_fault_names_the_line_and_the_path_of_what_is_wrong() -> None:
    document = Document(TEXT, PATH)
    for entry in LINES.split(","):
        path, _, line = entry.lstrip("\n").removeprefix(" ").rstrip().rpartition(" ")
        where = tuple(int(place) if place else name for place, name in re.findall(r"\[(\d+)\]|([^.\[]+)", path))
        assert document.fault(where, "wrong", "to do") == Fault(PATH, int(line), path, "wrong", "to do")
    assert line_of("", "a") == line_of("{}", "a") == 0


def test_behind_an_alias_the_line_is_that_of_the_value_itself() -> None:
    text = "a: &x\n  b: 1\n\nc: *x\n"
    assert line_of(text, "a", "b") == line_of(text, "c", "b") == 2
    assert line_of(text, "c") == 4


def test_lines_end_as_any_editor_ends_them() -> None:
    for end in ("\n", "\r\n", "\r"):
        assert line_of(end.join(["a: 1", "# grün", "b:", "  c: 2", ""]), "b", "c") == 4


BAD: list[tuple[str, int]] = [
    ("a: 1\na: 2\n", 2),
    ("a:\n  b: 1\n  c: {d: 1,\n    d: 2}\n", 4),
    ("1: a\n'1': b\n", 2),
    ("a: {b", 1),
    ("a: b: c", 1),
    ("a: 1\n b: 2\n", 2),
    ("a: 'b", 1),
    ("a: *x\n", 1),
    ("a: &x 1\nb: &x 2\n", 2),
    ("a: 1\n---\nb: 2\n", 2),
    *((text, 1) for text in ("a: !!python/name:os.system\n", "a: !ours x\n")),
    ("b: 1\na: 2001-02-31\n", 2),
    ("a: !!int x\n", 1),
    ("a: !!bool 7\n", 1),
    *((text, 1) for text in ("? [a, b]\n: c\n", "? {a: b}\n: c\n")),
    ("a: !!binary ä\n", 1),
    ("a: 0b_\n", 1),
    ("<<: 1\n", 1),
    ("a: =\n", 1),
    ("? " * 1000, 0),
    *((f"a: {text}", 1) for text in ("[" * 25 + "]" * 25, "&x {b: *x}", "&x [{b: [*x]}]")),
    ("a: " + "[" * 1000, 0),
    ("a: \x00\n", 0),
    ("a: \ud800\n", 0),
    *((text, 1) for text in ("[]", "false", "0", "''", "text")),
]


@pytest.mark.parametrize(("text", "line"), BAD, ids=[repr(text[:40]) for text, _ in BAD])
def test_what_is_no_document_is_refused_with_its_line(text: str, line: int) -> None:
    assert fault_of(text).line == line


def test_a_thousand_aliases_are_looked_at_once_each() -> None:
    # Each list holds the one before nine times: written out they would be more than there are atoms.
    text = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 19))
    assert len(Document(text, PATH).data) == 19
