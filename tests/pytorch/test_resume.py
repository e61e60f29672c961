"""A training that was stopped, anywhere, ends with the very weights of one that was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined import pytorch
from tests.pytorch.small import same, train, weights


@pytest.mark.parametrize("aggregation", [1, 3])
@pytest.mark.parametrize(
    "stop_after",
    [1, pytest.param(13, marks=pytest.mark.everything), 20, pytest.param(38, marks=pytest.mark.everything)],
)
def test_a_stop_after_any_batch_changes_no_weight(off_cluster: Path, stop_after: int, aggregation: int) -> None:
    whole, _ = train(aggregation=aggregation)
    part, stopped = train(aggregation=aggregation, stop_after=stop_after)
    assert len(stopped.saved) == 1
    assert not same(weights(part), weights(whole))
    # The process that goes on has drawn other random numbers before.
    rest, _ = train(aggregation=aggregation, latest_checkpoint=stopped.saved[-1])
    assert same(weights(rest), weights(whole))
    assert rest.optimizer.param_groups[0]["lr"] == whole.optimizer.param_groups[0]["lr"]


def test_stops_validations_and_checkpoints_on_the_way_change_no_weight(off_cluster: Path) -> None:
    whole, _ = train()
    latest = None
    for stop_after in (3, 4, 17, 30, None):
        trial, stopped = train(
            stop_after=stop_after,
            latest_checkpoint=latest,
            validation_period=pytorch.Batch(4),
            checkpoint_period=pytorch.Batch(5),
            checkpoint_policy="none",
            reporting_period=pytorch.Batch(2),
        )
        latest = stopped.saved[-1]
    assert same(weights(trial), weights(whole))
