"""What is read from a document, and that nothing of it is overlooked."""

from __future__ import annotations

import pytest

from tests.docs.blocks import BadDocument, Block, Mark, blocks, commands, inline, pattern


def sh(text: str) -> Block:
    return Block("x.md", 1, "sh", text, ())


def test_blocks_come_with_their_marks_and_with_what_they_show() -> None:
    text = """# Title

<!-- file: /etc/bccnd/bccnd.yaml -->
```yaml
host: relay01
```

<!-- anything else -->
<!-- prepare:
bccn pub a b
-->
<!-- run: long -->

```sh
bccn pub c d
```

<!-- shows: alike -->
```text
c d
```

- in a list:

  ```python
  if True:
      pass
  ```
"""
    assert blocks("x.md", text) == [
        Block("x.md", 4, "yaml", "host: relay01\n", (Mark("file", "/etc/bccnd/bccnd.yaml"),)),
        Block(
            "x.md",
            14,
            "sh",
            "bccn pub c d\n",
            (Mark("prepare", "bccn pub a b"), Mark("run", "long"), Mark("shows", "alike")),
            "c d\n",
        ),
        Block("x.md", 25, "python", "if True:\n    pass\n", ()),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("```sh\nls\n", "x.md:1: a block that does not end"),
        ("<!-- run: long\n", "x.md:1: a comment that does not end"),
        ("<!-- run: long -->\ntext\n", "x.md:2: a mark (run) with no block"),
        ("text\n<!-- run by tests/x.py -->\n", r"x.md: a mark (run by) with no block"),
    ],
)
def test_what_nobody_can_follow_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadDocument) as refused:
        blocks("x.md", text)
    assert says in str(refused.value)


def test_a_text_block_belongs_only_to_the_block_right_before_it() -> None:
    first, second = blocks("x.md", "```sh\nls\n```\nand this:\n```text\nx\n```\n")
    assert (first.shows, second.kind) == ("", "text")


def test_lines_that_belong_together_are_one_command() -> None:
    whole = ["a \\\n  b", "printf x |\n  cat", "for i in 1 2; do\n  echo\ndone", "cat <<E\nx # y\nE", "last"]
    found = commands(sh("# about\n" + "\n\n".join(whole)))
    assert [(one.line, one.text) for one in found] == list(zip((3, 6, 9, 13, 17), whole, strict=True))
    with pytest.raises(BadDocument, match=r"x\.md:2: a command that does not end"):
        commands(sh("echo 'a\n"))


@pytest.mark.parametrize(
    ("line", "shows", "status", "key", "stays"),
    [
        ("a '# no' # => one ...", "one ...", 0, "", False),
        ("b   # any words", "", 0, "", False),
        ("c   # refused: exit code 1", "", 1, "", False),
        ("d   # everything; Ctrl-C ends it", "", 0, "\x03", False),
        ("e & # here => two; q ends it", "two", 0, "q", True),
        ("f#g", "", 0, "", False),
    ],
)
def test_comments_say_what_becomes_of_a_command(line: str, shows: str, status: int, key: str, stays: bool) -> None:
    (one,) = commands(sh(line))
    assert (one.shows, one.status, one.key, one.stays) == (shows, status, key, stays)


@pytest.mark.parametrize(
    ("shown", "alike", "found", "missed"),
    [
        ("a b", False, "x\na b\ny\n", "xa b\n"),
        ("a ... b", False, "a 1 2 b\n", "a 1 2 c\n"),
        ("a\n...\nb\n", False, "a\nx\ny\nb\n", "b\na\n"),
        ("a\nb\n", False, "a\nb\n", "a\nx\nb\n"),
        ("1,234 us  x", True, "9 us x\n", "one us x\n"),
        ("1", False, "1\n", "2\n"),
        ("a+b", False, "a+b\n", "aab\n"),
    ],
)
def test_what_is_shown_is_found_as_whole_lines(shown: str, alike: bool, found: str, missed: str) -> None:
    assert pattern(shown, alike=alike).search(found)
    assert not pattern(shown, alike=alike).search(missed)


def test_commands_in_the_text_are_found_and_those_in_blocks_are_not() -> None:
    text = "Use `bccn top\n--once` or `make demo`.\n```sh\n`bccn x`\n```\n`bccnx` ``bccn y`` `python -m tests.bench`"
    assert [(one.line, one.text) for one in inline("x.md", text)] == [
        (1, "bccn top --once"),
        (2, "make demo"),
        (6, "python -m tests.bench"),
    ]
