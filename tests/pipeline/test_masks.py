"""Masks of bits, in Python and as Spark sees them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from bccnd.pipeline import masks

WORDS = 3
BITS = st.sets(st.integers(0, WORDS * 63 - 1))


@given(BITS)
def test_bits_go_into_words_and_come_back(bits: set[int]) -> None:
    words = masks.of_bits(bits, WORDS)
    assert all(0 <= word < 2**63 for word in words)
    assert masks.bits_of(words) == sorted(bits)


def test_words_are_as_many_as_it_takes() -> None:
    assert [masks.words_for(hosts) for hosts in (0, 1, 63, 64, 126, 127)] == [1, 1, 1, 2, 2, 3]
    assert masks.names("seen", 3) == ["seen", "seen_1", "seen_2"]


def test_bits_move_to_their_places_across_words(spark: SparkSession) -> None:
    """Of 130 hosts some are gone, so that all behind them move down."""
    gone = {0, 5, 62, 64, 65, 100, 129}
    kept = [bit for bit in range(130) if bit not in gone]
    places = {bit: place for place, bit in enumerate(kept)}
    sets = [set(range(130)), {61, 62, 63, 125, 126, 128}, set(), {129}, {1}]
    names = masks.names("seen", WORDS)
    frame = spark.createDataFrame([masks.of_bits(bits, WORDS) for bits in sets], [*names])
    moved = frame.select(*masks.moved("seen", places, WORDS, 2)).collect()
    assert [masks.bits_of(row) for row in moved] == [sorted(places[bit] for bit in bits - gone) for bits in sets]


def test_a_bit_is_found_in_its_word(spark: SparkSession) -> None:
    bits = {0, 62, 63, 125, 126}
    frame = spark.createDataFrame(
        [(*masks.of_bits(bits, WORDS), bit) for bit in range(130)], [*masks.names("m", WORDS), "bit"]
    )
    frame = frame.withColumn("bit", frame["bit"].cast("int"))
    assert {row["bit"] for row in frame.filter(masks.has("m", "bit", WORDS)).collect()} == bits
    single = frame.select("bit", *[masks.single("bit", word) for word in range(WORDS)]).collect()
    assert all(masks.bits_of(row[1:]) == [row[0]] for row in single)
