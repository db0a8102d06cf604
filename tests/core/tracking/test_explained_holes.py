"""Which holes are losses: as far as the rate and the silence of a source explain them."""

from __future__ import annotations

import pytest

from bccnd.core.tracking.explained_holes import LEAST, RATES, is_explained, rate_of_run

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("skipped", "numbers", "duration", "silence", "explained"),
    [
        (RATES * 1000, 500, 5 * SECOND, 10 * SECOND, True),
        (RATES * 1000 + 1, 500, 5 * SECOND, 10 * SECOND, False),
        # A few messages close to each other are no rate.
        (RATES * 5, 5, 10, SECOND, True),
        (RATES * 5 + 1, 5, 10, LEAST, False),
        (1, 0, 5 * SECOND, 10 * SECOND, False),
        (0, 0, 0, 0, True),
    ],
)
def test_a_hole_is_a_loss_up_to_a_multiple_of_what_was_sent_meanwhile(
    skipped: int, numbers: int, duration: int, silence: int, explained: bool
) -> None:
    assert is_explained(skipped, rate_of_run(numbers, duration), silence) is explained
