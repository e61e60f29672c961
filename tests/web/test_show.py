"""How values look on a page."""

from __future__ import annotations

import pytest

from dethpc.web.show import standing


@pytest.mark.parametrize(
    ("noun", "shown"),
    [
        ({"state": "STATE_RUNNING", "suspended": True}, "suspended"),
        ({"state": "STATE_RUNNING", "suspended": False}, "running"),
        ({"state": "STATE_RUNNING", "runningJobs": 4, "suspendedJobs": 4}, "suspended"),
        ({"state": "STATE_RUNNING", "runningJobs": 4, "suspendedJobs": 1}, "(1 of 4 jobs suspended)"),
        ({"state": "STATE_PAUSED", "runningJobs": 1, "suspendedJobs": 1}, "paused"),
    ],
)
def test_the_state_says_what_the_scheduler_has_suspended(noun: dict[str, object], shown: str) -> None:
    assert shown in standing(noun)
