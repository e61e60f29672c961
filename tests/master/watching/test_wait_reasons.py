"""Why a trial waits that has no run."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest

from dethpc.domain.states import State
from dethpc.engine.trials import AWAY
from dethpc.master.watching.wait_reasons import _without_run
from tests.master.conftest import trial


@pytest.mark.parametrize(
    ("reason", "cause", "words"),
    [
        ("restarted: code 1", "resting", r"it restarts in \d+ s after a failure \(restarted: code 1\)"),
        (f"{AWAY}s3://b: none", "storage", r"it waits for its storage: s3://b: none; .* in \d+ s"),
    ],
)
def test_a_trial_that_rests_says_until_when_and_for_what(reason: str, cause: str, words: str) -> None:
    resting = replace(trial(1), state=State.ACTIVE, reason=reason, not_before=time.time() + 60)
    found = _without_run(resting, None)  # type: ignore[arg-type]  # nothing else is asked
    assert found.cause == cause and re.match(words, found.why), found.why
