"""Datagrams from the command line and standard input."""

from __future__ import annotations

import pytest

from bccnd.cli.diagnosis.trace import read_hex, without_newline


def test_hexadecimal_may_be_written_as_tools_print_it() -> None:
    assert read_hex(b"42 43:4343\n4e\t31") == b"BCCCN1"
    for wrong in (b"4", b"zz", b"\xff\xff"):
        with pytest.raises(ValueError):
            read_hex(wrong)


def test_a_newline_is_left_out_only_where_the_length_says_so() -> None:
    assert without_newline(b"BCCN1[9]a:1:x|abc\n") == b"BCCN1[9]a:1:x|abc"
    for same in (b"BCCN1[10]a:1:x|abc\n", b"BCCN1[9]a:1:x|abc\n\n", b"BCCN1[9]a:1:x|abc", b"junk\n", b""):
        assert without_newline(same) == same
