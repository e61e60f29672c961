"""What a search says of a trial that it stops."""

from __future__ import annotations

import pytest

from dethpc.domain.text.rungs import place, place_of, stopped_early


@pytest.mark.parametrize(
    ("state", "reason", "early"),
    [
        (
            "STATE_COMPLETED",
            f"{place(1, 'epochs', 4)}: loss 0.5 is worse than the cut-off 0.4 (the best 1 of 4 so far go on)",
            True,
        ),
        ("COMPLETED", f"{place(0, 'batches', 100)}: loss NaN, which ranks worst", True),
        ("COMPLETED", "trained to the full length, epochs 16: loss 0.1", False),
        ("STATE_CANCELED", f"{place(1, 'epochs', 4)}: loss 0.5", False),
        ("COMPLETED", "", False),
    ],
)
def test_a_trial_that_its_search_stopped_is_told_from_one_that_trained_all(
    state: str, reason: str, early: bool
) -> None:
    assert stopped_early(state, reason) is early


def test_the_rung_is_read_out_of_a_reason() -> None:
    assert place_of(f"{place(1, 'epochs', 4)}: loss 0.5 is worse than the cut-off 0.4") == "rung 1 (epochs 4)"
    assert place_of("exit code 1: rung") == ""
