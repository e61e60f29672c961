"""A sweep that is looked at while it runs."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dethpc.client.session import Session
from dethpc.domain.trial_config import SearcherConfig
from dethpc.sweeps import TrialFailed
from dethpc.sweeps.follow import Sweep


@pytest.mark.parametrize(
    ("state", "more"), [("ACTIVE", " yet; the sweep still runs: call wait() first"), ("ERROR", "")]
)
def test_the_best_of_a_sweep_that_still_runs_is_to_be_waited_for(
    monkeypatch: pytest.MonkeyPatch, state: str, more: str
) -> None:
    monkeypatch.setattr(Sweep, "trials", property(lambda self: []))
    monkeypatch.setattr(Sweep, "_by", lambda self: SearcherConfig.of({"searcher": {"metric": "loss"}}))
    sweep = Sweep(cast(Session, None), 3)
    about: dict[str, Any] = {"state": f"STATE_{state}"}
    sweep._about = about
    with pytest.raises(TrialFailed) as caught:
        _ = sweep.best
    assert str(caught.value) == f"experiment 3: no trial has a loss that is a number{more}"
