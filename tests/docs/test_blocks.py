"""What is read from a document, and that nothing of it is overlooked."""

from __future__ import annotations

import pytest

from tests.docs.blocks import BadDocument, Block, Mark, blocks, commands, inline, pattern

TEXT = """# Title
<!-- anything else -->
<!-- prepare:
bccn pub a b
-->
<!-- run: long -->

```sh
# about
a \\
  b   # any words

cat <<E
x # y
E
a '# no' # => one ...
c   # refused: exit code 1
e & # here => two; q ends it
f#g
```

<!-- shows: alike -->
```text
c d
```

- in `make
  demo` a list: ``bccn y``

  ```python
  `bccn x`
  ```
and this:
```text
x
```
"""


def test_blocks_come_with_their_marks_and_commands_with_what_their_comments_say() -> None:
    first, *others = blocks("x.md", TEXT)
    assert others == [Block("x.md", 30, "python", "`bccn x`\n", ()), Block("x.md", 34, "text", "x\n", ())]
    assert (first.line, first.kind, first.shows) == (8, "sh", "c d\n")
    assert first.marks == (Mark("prepare", "bccn pub a b"), Mark("run", "long"), Mark("shows", "alike"))
    assert [(one.line, one.shows, one.status, one.key, one.stays) for one in commands(first)] == [
        (10, "", 0, "", False),
        (13, "", 0, "", False),
        (16, "one ...", 0, "", False),
        (17, "", 1, "", False),
        (18, "two", 0, "q", True),
        (19, "", 0, "", False),
    ]
    assert [(one.line, one.text) for one in inline("x.md", TEXT)] == [(27, "make demo")]


@pytest.mark.parametrize(
    "text", ["```sh\nls\n", "<!-- run: long\n", "<!-- run: long -->\ntext\n", "text\n<!-- run by x.py -->\n"]
)
def test_what_nobody_can_follow_is_refused(text: str) -> None:
    with pytest.raises(BadDocument):
        blocks("x.md", text)


@pytest.mark.parametrize(
    ("shown", "alike", "found", "missed"),
    [
        ("a ... b", False, "x\na 1 2 b\n", "xa 1 b\n"),
        ("a\n...\nb\n", False, "a\nx\ny\nb\n", "b\na\n"),
        ("1,234 us  x", True, "9 us x\n", "one us x\n"),
        ("a+1", False, "a+1\n", "aa2\n"),
    ],
)
def test_what_is_shown_is_found_as_whole_lines(shown: str, alike: bool, found: str, missed: str) -> None:
    assert pattern(shown, alike=alike).search(found)
    assert not pattern(shown, alike=alike).search(missed)
