"""What the loop does after each batch is little, and comes to the same."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from dethpc.pytorch import Batch, Epoch, TrainUnit
from dethpc.pytorch._training import metrics as _metrics
from dethpc.pytorch._training.due import Due


@pytest.mark.parametrize(
    "unit", [Batch(1), Batch(4), Batch(0), Batch([3, 5]), Batch(sys.maxsize), Epoch(1)], ids=lambda unit: repr(unit)
)
@pytest.mark.parametrize("begin", [0, 3, 4])
def test_nothing_is_due_before_the_loop_looks_for_it(unit: TrainUnit, begin: int) -> None:
    due = Due(unit)
    soonest = due.soonest(begin)
    assert soonest > begin
    assert not [n for n in range(begin + 1, min(soonest, begin + 20)) if due.after(n, None)]


def test_a_period_is_looked_for_when_it_is_due_and_not_after_each_batch() -> None:
    assert [Due(Batch(25)).soonest(n) for n in (0, 24, 25)] == [25, 25, 50]
    assert Due(Epoch(1)).soonest(7) == sys.maxsize  # at an epoch's end the loop looks whatever this says


@pytest.mark.parametrize("value", [torch.tensor(1.5), torch.tensor([1.5]), torch.tensor(3), torch.ones(2)], ids=str)
def test_metrics_of_a_batch_do_not_follow_their_tensors(value: Any) -> None:
    before = value.clone()
    snapshot = _metrics.snapshot({"loss": value})
    value += 1
    (fetched,) = _metrics.fetched([snapshot])
    assert torch.equal(torch.as_tensor(fetched["loss"], dtype=before.dtype), before)


def test_a_loss_on_the_cpu_is_a_number_and_callbacks_get_one_of_numpys() -> None:
    loss = torch.tensor(0.5, requires_grad=True) * 3
    batches = _metrics.fetched([_metrics.snapshot(loss)])
    assert batches == [{"loss": 1.5}] and type(batches[0]["loss"]) is float
    numpy = pytest.importorskip("numpy")
    assert isinstance(_metrics.for_callbacks(batches)[0]["loss"], numpy.floating)
