"""Loaders and samplers: every record once an epoch, in an order that comes again."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, SequentialSampler, TensorDataset, WeightedRandomSampler

from determined import pytorch
from determined.pytorch import samplers


def numbers(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count))


def taken(loader: Any, count: int) -> list[list[int]]:
    return [batch[0].tolist() for batch in itertools.islice(loader, count)]


@settings(max_examples=60, deadline=None)
@given(
    records=st.integers(1, 40),
    size=st.integers(1, 7),
    slots=st.integers(1, 4),
    skip=st.integers(0, 30),
    seed=st.integers(0, 9),
    noise=st.integers(0, 5),
)
def test_a_shuffle_goes_on_where_it_was_on_any_number_of_slots(
    records: int, size: int, slots: int, skip: int, seed: int, noise: int
) -> None:
    def loader(rank: int, slots: int, skip: int, noise: int) -> Any:
        torch.manual_seed(seed)
        made = pytorch.DataLoader(numbers(records), batch_size=size, shuffle=True)
        torch.rand(noise)  # what else the training draws
        return made.get_data_loader(repeat=True, skip=skip, num_replicas=slots, rank=rank)

    wanted = 3 * -(-records // size)
    whole = taken(loader(0, 1, 0, 0), wanted + slots * (skip + 2))
    each = [taken(loader(rank, slots, skip, noise), 2) for rank in range(slots)]
    turns = [batch for turn in zip(*each) for batch in turn]
    assert turns == whole[skip * slots : skip * slots + len(turns)]
    epoch = -(-records // size)
    assert sorted(n for batch in whole[:epoch] for n in batch) == list(range(records))


def test_each_epoch_has_an_order_of_its_own() -> None:
    torch.manual_seed(3)
    loader = pytorch.DataLoader(numbers(50), batch_size=50, shuffle=True)
    first, second = taken(loader, 1), taken(loader, 1)
    assert first != second and sorted(first[0]) == sorted(second[0])


def test_other_random_samplers_do_not_depend_on_what_else_is_drawn() -> None:
    def drawn(noise: int) -> list[list[int]]:
        torch.manual_seed(3)
        made = pytorch.DataLoader(numbers(9), batch_size=3, sampler=WeightedRandomSampler([1.0] * 9, 9))
        torch.rand(noise)
        return taken(made.get_data_loader(repeat=True), 7)

    assert drawn(0) == drawn(5)


@given(count=st.integers(0, 30), workers=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_shares_have_the_lengths_that_they_say(count: int, workers: int) -> None:
    base = SequentialSampler(range(count))
    batches = BatchSampler(base, 1, False)
    for rank in range(workers):
        one = samplers.DistributedSampler(base, workers, rank)
        many = samplers.DistributedBatchSampler(batches, workers, rank)
        assert len(list(one)) == len(one) == len(many) == len(list(many))
    assert sorted(n for r in range(workers) for n in samplers.DistributedSampler(base, workers, r)) == list(
        range(count)
    )


def test_skipping_repeating_and_shuffling() -> None:
    base = SequentialSampler(range(4))
    assert list(samplers.SkipSampler(base, 3)) == [3] and len(samplers.SkipSampler(base, 3)) == 4
    assert list(samplers.SkipBatchSampler(BatchSampler(base, 2, False), 9)) == []
    assert list(itertools.islice(samplers.RepeatSampler(base), 6)) == [0, 1, 2, 3, 0, 1]
    assert list(itertools.islice(samplers.RepeatBatchSampler(BatchSampler(base, 2, False)), 3)) == [
        [0, 1],
        [2, 3],
        [0, 1],
    ]
    one, other = (samplers.ReproducibleShuffleSampler(SequentialSampler(range(20)), seed) for seed in (7, 7))
    epochs = [list(one), list(one)]
    assert epochs == [list(other), list(other)] and epochs[0] != epochs[1]
    shuffled = samplers.ReproducibleShuffleBatchSampler(BatchSampler(base, 2, False), 1)
    assert sorted(shuffled) == [[0, 1], [2, 3]] and len(shuffled) == 2


NUMPYS = json.loads((Path(__file__).parent / "numpy_orders.json").read_text())


@pytest.mark.parametrize("made", NUMPYS, ids=lambda made: f"seed{made['seed']}")
def test_records_and_batches_are_shuffled_as_numpy_shuffles_for_determined(made: dict[str, Any]) -> None:
    """``numpy_orders.json`` holds what ``numpy.random.RandomState(seed).shuffle(list(range(n)))`` makes, twice for each seed."""
    first, second = made["epochs"]
    records = samplers.ReproducibleShuffleSampler(SequentialSampler(range(len(first))), made["seed"])
    assert [list(records), list(records)] == [first, second]
    of_one = BatchSampler(SequentialSampler(range(len(first))), 1, False)
    batches = samplers.ReproducibleShuffleBatchSampler(of_one, made["seed"])
    assert list(batches) == [[record] for record in first]


def test_a_seed_that_numpy_refuses_is_refused() -> None:
    for seed in (-1, 1 << 32):
        with pytest.raises(ValueError, match="from 0 to"):
            samplers.ReproducibleShuffleSampler(SequentialSampler(range(3)), seed)


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": None},
        {"num_workers": -1},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"shuffle": True, "sampler": SequentialSampler(range(3))},
        {"batch_sampler": BatchSampler(SequentialSampler(range(3)), 1, False), "batch_size": 2},
    ],
    ids=lambda wrong: ",".join(wrong),
)
def test_arguments_that_contradict_each_other(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        pytorch.DataLoader(numbers(3), **wrong)


def test_moving_and_measuring_batches() -> None:
    numpy = pytest.importorskip("numpy")
    cpu = torch.device("cpu")
    moved = pytorch.to_device({"a": numpy.ones(3), "b": (torch.ones(2), [numpy.zeros(1)]), "c": "text"}, cpu)
    assert isinstance(moved["a"], torch.Tensor) and isinstance(moved["b"][1][0], torch.Tensor) and moved["c"] == "text"
    assert [pytorch.data_length(d) for d in (torch.ones(3, 2), {"a": numpy.ones(4)}, [torch.ones(5)])] == [3, 4, 5]
    with pytest.raises(TypeError):
        pytorch.data_length(3)
