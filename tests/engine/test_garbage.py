"""Which checkpoints a policy keeps."""

from __future__ import annotations

import random

import pytest

from dethpc.engine.garbage import Candidate, Policy, unwanted

TWO_TRIALS = [
    Candidate("a1", 1, 1.0, 0.5),
    Candidate("a2", 1, 2.0, 0.1),
    Candidate("a3", 1, 3.0, None),
    Candidate("b1", 2, 1.5, 0.3),
    Candidate("b2", 2, 2.5, 0.9),
    Candidate("b3", 2, 3.5, float("nan")),
]


@pytest.mark.parametrize(
    ("policy", "stays"),
    [
        (Policy(0, 1, 1), {"a2", "a3", "b1", "b3"}),  # the defaults
        (Policy(0, 0, 1), {"a3", "b3"}),
        (Policy(1, 0, 0), {"a2"}),
        (Policy(2, 0, 0), {"a2", "b1"}),
        (Policy(0, 1, 0, smaller_is_better=False), {"a1", "b2"}),
        (Policy(0, 5, 0), {"a1", "a2", "b1", "b2"}),  # without a value none is one of the best
        (Policy(0, 0, 0), set()),
        (Policy(1, 1, 5), {"a1", "a2", "a3", "b1", "b2", "b3"}),
    ],
)
def test_what_one_of_the_counts_keeps_stays(policy: Policy, stays: set[str]) -> None:
    gone = unwanted(policy, TWO_TRIALS)
    assert {c.uuid for c in TWO_TRIALS} - set(gone) == stays
    assert gone == sorted(gone, key=lambda uuid: next(c.reported_at for c in TWO_TRIALS if c.uuid == uuid))


def test_what_somebody_needs_stays() -> None:
    assert set(unwanted(Policy(0, 0, 0), TWO_TRIALS, {"a1", "elsewhere"})) == {"a2", "a3", "b1", "b2", "b3"}


def test_of_equally_good_ones_the_older_stays_whatever_their_order() -> None:
    equal = [Candidate(f"c{n}", 1, float(n), 0.5) for n in range(5)]
    random.Random(7).shuffle(equal)
    assert set(unwanted(Policy(0, 1, 0), equal)) == {"c1", "c2", "c3", "c4"}


def test_the_latest_is_one_that_the_trial_can_go_on_from() -> None:
    stripped = Candidate("stripped", 1, 9.0, None, whole=False)
    assert unwanted(Policy(0, 0, 1), [*TWO_TRIALS[:3], stripped]) == ["a1", "a2", "stripped"]
