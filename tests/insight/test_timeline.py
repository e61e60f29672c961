"""The time of a trial as spans, which are what its goodput sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.domain.facts import Attempt
from dethpc.domain.goodput import of_run
from dethpc.domain.states import AttemptState, End
from dethpc.insight.timeline import of_attempts
from tests.domain.test_goodput import TRAINED, attempt
from tests.master.conftest import run_of, trial

RUN = replace(run_of(trial(1)), created_at=0.0, ended_at=300.0, slots=1)


def test_each_attempt_says_what_its_time_went_to() -> None:
    first = replace(attempt(5, 100, End.NODE_FAIL, saved_at=60.0, saving=3.0, **TRAINED), run_id=RUN.id)
    second = replace(attempt(150, 300), number=1, run_id=RUN.id)
    one, two = of_attempts(RUN, [first, second], 999)
    assert one.spans == [("waiting", 0, 5), ("starting", 5, 10), ("training", 10, 60), ("lost", 60, 100)]
    assert two.spans == [("waiting", 100, 150), ("training", 150, 300)] and one.saving == 3


def test_a_run_that_has_not_started_waits() -> None:
    (found,) = of_attempts(replace(RUN, ended_at=None), [], 40)
    assert found.attempt is None and found.spans == [("waiting", 0, 40)]


TIMES = st.none() | st.floats(0, 200)


@given(st.floats(0, 100), st.floats(0, 100), st.sampled_from(End), *(TIMES for _ in range(5)), st.integers(0, 50))
def test_spans_follow_each_other_and_sum_to_the_goodput(
    begin: float, length: float, end: End, first: Any, last: Any, saved: Any, kept: Any, saving: Any, steps: int
) -> None:
    ended = Attempt(RUN.id, 0, 1, RUN.task_id, AttemptState.ENDED, begin, begin + length, end=end, saved_at=saved)
    ended = replace(
        ended, first_at=first, last_at=last, kept_at=kept, saving=saving, first_steps=steps, last_steps=2 * steps
    )
    run = replace(RUN, ended_at=begin + length)
    (found,) = of_attempts(run, [ended], 999)
    for (_, _, until), (_, since, _) in zip(found.spans, found.spans[1:], strict=False):
        assert until == since
    sums = {kind: sum(b - a for k, a, b in found.spans if k == kind) for kind in ("waiting", "training", "lost")}
    total = of_run(run, [ended], 999)
    assert sums["waiting"] == pytest.approx(total.waiting) and sums["lost"] == pytest.approx(total.lost)
    assert sums["training"] - found.saving == pytest.approx(total.useful)
