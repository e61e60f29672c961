"""A day of a busy site in small: the queue, its window and its manners, in the production engine."""

from __future__ import annotations

import pytest

from dethpc.simulator.busy import busy_day
from dethpc.simulator.traffic import LOOK, Traffic


@pytest.mark.parametrize("weights", [True, False], ids=["nice orders", "nice moves nothing"])
def test_a_busy_site_is_served_within_its_limits_and_nobody_starves(weights: bool) -> None:
    days = [busy_day(trials, nodes=nodes, seed=3, weights=weights) for trials, nodes in ((150, 6), (600, 12))]
    for day in days:
        assert day.completed >= 0.98 * day.trials and day.attempts > day.trials, "with preemptions and failures"
        assert day.traffic.lowest() >= 0, "Slurm's bucket is never empty"
        assert day.traffic.idle <= 1, "no slot idle beyond a cycle while a trial for it is not submitted"
        assert max(day.longest_wait.values()) < 12 * 3600, (
            "the last priority on a full site waits for hours, not for ever"
        )
        assert set(day.longest_wait) == {1, 2, 4, 8, 16}
    worst = [max(day.traffic.looks) for day in days]
    assert max(worst) <= LOOK + 16, "a cycle costs as much at most, however many trials there are"


def test_a_bucket_of_tokens() -> None:
    traffic = Traffic(requests=[(0.0, 20), (5.0, 15), (100.0, 31)])
    assert traffic.lowest(bucket=30, refill=2) == -1
    assert Traffic(requests=[(0.0, 20), (5.0, 15)]).lowest(bucket=30, refill=2) == 5
