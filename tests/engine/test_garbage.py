"""Which checkpoints a policy keeps."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_the_best_is_one_that_can_be_used() -> None:
    stripped = Candidate("stripped", 1, 9.0, 0.01, whole=False)
    for policy in (Policy(1, 0, 0), Policy(0, 1, 0)):
        assert "a2" not in unwanted(policy, [*TWO_TRIALS[:3], stripped])


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        st.uuids().map(str),
        st.integers(1, 3),
        st.floats(0, 10),
        st.none() | st.floats(-1, 1) | st.just(float("nan")),
        st.booleans(),
    ),
    unique_by=lambda c: c.uuid,
    max_size=12,
)


@given(CANDIDATES, st.builds(Policy, *[st.integers(0, 3)] * 3, st.booleans()))
def test_what_is_partly_deleted_takes_no_place_from_what_is_whole(candidates: list[Candidate], policy: Policy) -> None:
    """Of the whole ones those stay that would stay if there were no others."""
    whole = [c for c in candidates if c.whole]
    gone = set(unwanted(policy, candidates))
    assert gone.intersection(c.uuid for c in whole) == set(unwanted(policy, whole))
