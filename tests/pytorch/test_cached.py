"""Datasets from the data layer in a PyTorchTrial: whatever stops a training, every record is seen as often as without a stop."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator, List

import pytest
import torch

from determined import pytorch
from tests.pytorch.small import HPARAMS, SmallTrial, data, same, train, weights
from tests.waiting import LONG_ENOUGH

pytest.importorskip("lmdb")

RECORDS, BATCH = 50, 8  # 7 batches, the last of 2


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


class Endless(torch.utils.data.IterableDataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        return iter(data(self.length))


class CachedTrial(SmallTrial):
    """``ledger``: what each batch had, by the sums of its records."""

    kind: Any = staticmethod(data)

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        self.ledger: List[List[float]] = []

    def build_training_data_loader(self) -> pytorch.DataLoader:
        cache = self.context.experimental.cache_train_dataset("small", "v1", shuffle=True)
        return pytorch.DataLoader(cache(self.kind)(RECORDS), batch_size=self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        @self.context.experimental.cache_validation_dataset("small-val", "v1")
        def validation_set() -> Any:
            torch.rand(3)  # only who makes it draws
            return data(30)

        return pytorch.DataLoader(validation_set(), batch_size=self.context.get_per_slot_batch_size())

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self.ledger.append([float(each) for each in batch[0].sum(1)])
        return super().train_batch(batch, epoch_idx, batch_idx)


@pytest.mark.parametrize("stop_after", [3, 7, 17])
def test_a_restored_trial_sees_exactly_the_records_that_it_had_not_seen(off_cluster: Path, stop_after: int) -> None:
    whole, _ = train(CachedTrial)
    part, stopped = train(CachedTrial, stop_after=stop_after)
    rest, _ = train(CachedTrial, latest_checkpoint=stopped.saved[-1])
    assert len(part.ledger) == stop_after and part.ledger + rest.ledger == whole.ledger
    everything = sorted(float(x.sum()) for x, _ in data(RECORDS))
    epochs = [sum(whole.ledger[7 * n : 7 * n + 7], []) for n in range(3)]
    assert all(sorted(epoch) == pytest.approx(everything) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2], "each epoch has an order of its own"
    assert same(weights(rest), weights(whole))


def test_an_iterable_dataset_gets_an_order_and_another_seed_another(off_cluster: Path) -> None:
    class FromStream(CachedTrial):
        kind = Endless

    one, _ = train(FromStream)
    other, _ = train(FromStream, seed=6)
    assert [len(batch) for batch in one.ledger] == [8, 8, 8, 8, 8, 8, 2] * 3
    assert one.ledger != other.ledger and sorted(sum(one.ledger, [])) == sorted(sum(other.ledger, []))


def test_who_finds_it_made_trains_to_the_weights_of_who_made_it(off_cluster: Path) -> None:
    made, _ = train(CachedTrial)
    found, _ = train(CachedTrial)
    assert same(weights(made), weights(found))


@pytest.mark.parametrize(("size", "skip"), [(1, 0), (1, 9), (2, 3), (3, 5), (4, 0)])
def test_workers_share_the_records_of_an_epoch_without_overlap(off_cluster: Path, size: int, skip: int) -> None:
    with pytorch.init(hparams=dict(HPARAMS)) as context:
        cached = context.experimental.cache_train_dataset("small", "v1", shuffle=True)(lambda: range(RECORDS))

        def batches(rank: int, skip: int) -> Iterator[List[int]]:
            loader = pytorch.DataLoader(cached(), batch_size=BATCH)
            return (batch.tolist() for batch in loader.get_data_loader(True, skip, size, rank))

        everywhere = [list(itertools.islice(batches(rank, 0), 28)) for rank in range(size)]
        in_turn = [batch for step in zip(*everywhere) for batch in step]
        for epoch in range(4):
            assert sorted(sum(in_turn[7 * epoch : 7 * epoch + 7], [])) == list(range(RECORDS))
        for rank in range(size):
            assert list(itertools.islice(batches(rank, skip), 5)) == everywhere[rank][skip : skip + 5]


def test_shuffles_stay_where_it_is_wanted(off_cluster: Path) -> None:
    with pytorch.init(hparams=dict(HPARAMS)) as context:
        experimental = context.experimental

        def epochs(decorator: Any) -> List[List[int]]:
            loader = pytorch.DataLoader(decorator(lambda: range(20))(), batch_size=20)
            return [next(iter(loader)).tolist() for _ in range(2)]

        plain = epochs(experimental.cache_train_dataset("plain", 1))
        once = epochs(experimental.cache_train_dataset("once", 1, shuffle=True, skip_shuffle_at_epoch_end=True))
        validation = epochs(experimental.cache_validation_dataset("validation", 1, shuffle=True))
        assert plain == [list(range(20))] * 2
        assert once[0] == once[1] == validation[0] == validation[1] != plain[0]


LOADED = """
import sys
from determined import pytorch

def tenfold(number):
    return 10 * number

if __name__ == "__main__":
    with pytorch.init(hparams={"global_batch_size": 5}) as context:
        cached = context.experimental.cache_train_dataset("numbers", "v1")(lambda: range(10))().map(tenfold)
        loader = pytorch.DataLoader(cached, batch_size=5, num_workers=2, multiprocessing_context=sys.argv[1])
        print([batch.tolist() for batch in loader])
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_records_are_changed_when_they_are_read_and_loader_workers_read_them(
    off_cluster: Path, tmp_path: Path, start: str
) -> None:
    """In a process of its own, as a training is: by now, this one has threads and locks of many tests, which a fork copies."""
    script = tmp_path / "train.py"
    script.write_text(LOADED)
    done = subprocess.run(
        [sys.executable, script, start], capture_output=True, text=True, timeout=LONG_ENOUGH, check=False
    )
    assert "[[0, 10, 20, 30, 40], [50, 60, 70, 80, 90]]" in done.stdout, done.stderr


def test_one_key_for_two_functions_is_refused(off_cluster: Path) -> None:
    with pytorch.init(hparams=dict(HPARAMS)) as context:

        @context.experimental.cache_train_dataset("small", "v1")
        def training() -> Any:
            return data(3)

        with pytest.raises(ValueError, match="give them two ids"):

            @context.experimental.cache_validation_dataset("small", "v1")
            def validation() -> Any:
                return data(4)

        assert len(training()) == 3


@pytest.mark.parametrize(
    "made", [None, {"x": [1]}, "text", 3, torch.utils.data.DataLoader([1])], ids=lambda made: type(made).__name__
)
def test_what_is_no_dataset_is_refused(off_cluster: Path, made: Any) -> None:
    with pytorch.init(hparams=dict(HPARAMS)) as context:
        with pytest.raises(TypeError, match="a cached function returns a dataset"):
            context.experimental.cache_train_dataset("x", "v1")(lambda: made)()
