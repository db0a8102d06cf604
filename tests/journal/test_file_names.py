"""Names of the journal say what they say, both ways."""

from __future__ import annotations

import datetime

from hypothesis import given
from hypothesis import strategies as st

from bccnd.journal import file_names

HOSTS = st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True).filter(file_names.is_host)
MOMENTS = st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2999, 12, 31)).map(
    lambda when: int(when.replace(tzinfo=datetime.UTC).timestamp()) * file_names.MICROSECONDS
)


@given(HOSTS, MOMENTS, st.integers(0, 2**40), st.integers(1, 10**17))
def test_a_name_says_what_it_was_made_of(host: str, now: int, random: int, first: int) -> None:
    made = file_names.ObsFile(host, file_names.day_of(now), file_names.journal_id(now, random), first)
    assert file_names.read_path(made.path) == made


@given(MOMENTS)
def test_a_day_is_that_of_utc(now: int) -> None:
    assert file_names.day_of(now) == f"{datetime.datetime.fromtimestamp(now / 1e6, datetime.UTC):%Y-%m-%d}"


@given(MOMENTS, MOMENTS)
def test_journals_sort_by_when_they_began(first: int, second: int) -> None:
    early, late = sorted((first, second))
    assert early == late or file_names.journal_id(early, 2**32 - 1) < file_names.journal_id(late, 0)


def test_other_and_unfinished_names_are_not_of_a_journal() -> None:
    finished = file_names.ObsFile("relay01", "2026-11-21", "20261121T120000Z-5c0ffee5", 1)
    folder, _, name = finished.path.rpartition("/")
    assert file_names.read_path(finished.path) == finished
    day = "obs/host=a/day=2026-11-21"
    names = ("x.parquet", "x-1.txt", "x-1_2.parquet", "sub/x-1.parquet", ".x-000000000001.parquet/y")
    for path in (
        *(f"{folder}/{file_names.UNFINISHED}{name}", *(f"{day}/{name}" for name in names)),
        *("obs/host=../day=2026-11-21/x-1.parquet", "obs/host=a/day=today/x-1.parquet", "sessions/host=a/x-1.parquet"),
    ):
        assert file_names.read_path(path) is None, path
