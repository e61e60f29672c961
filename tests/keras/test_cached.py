"""Datasets from the data layer in ``model.fit()``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import keras
import numpy as np
import pytest

import determined as det
from determined.keras import DeterminedCallback
from tests.core.conftest import Cluster
from tests.keras.test_callback import BATCHES, StopAt, X, Y, build, same

pytest.importorskip("lmdb")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


class Ledger(keras.utils.PyDataset):
    """Writes down which records each batch had, by their sums."""

    def __init__(self, batches: Any) -> None:
        super().__init__()
        self.batches, self.read = batches, []  # type: Any, List[List[float]]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        x, y = self.batches[index]
        self.read.append(x.sum(1).tolist())
        return x, y


def train(cluster: Cluster, *, epochs: int = 4, stop_at: Any = None, calls: List[int]) -> Any:
    cluster.enter()
    cluster.attempt.stop.unlink(missing_ok=True)
    if cluster.master is None:
        cluster.start_master()
    keras.utils.set_random_seed(1)
    info = det.get_cluster_info()
    assert info is not None
    model = build()
    with det.core.init() as core_context:
        data_layer = det.keras.DataLayer(core_context)

        @data_layer.cache_train_dataset("small", "v1", shuffle=True)
        def train_set() -> Any:
            calls.append(1)
            return X, Y

        @data_layer.cache_validation_dataset("small-val", "v1")
        def validation_set() -> Any:
            return ((x, y) for x, y in zip(X[:20], Y[:20]))

        ledger = Ledger(train_set().batch(8))
        callback = DeterminedCallback(core_context, info.latest_checkpoint, info.trial.trial_id)
        model.fit(
            ledger,
            epochs=epochs,
            shuffle=False,
            validation_data=validation_set().batch(8),
            callbacks=[StopAt(cluster, stop_at), callback],
        )
    return model, ledger.read[-BATCHES * epochs :]


@pytest.mark.parametrize("stop_at", [0, 2])
def test_a_training_that_goes_on_goes_through_the_records_as_one_without_a_stop(
    tmp_path: Path, cluster: Cluster, stop_at: int
) -> None:
    calls: List[int] = []
    other = Cluster(tmp_path / "other")
    whole, order = train(other, calls=calls)
    assert other.master is not None
    other.master.close()
    train(cluster, calls=calls, stop_at=stop_at)
    from tests.frameworks import saved

    cluster.info["latest_checkpoint"] = saved(cluster)[-1]["uuid"]
    rest, order_of_rest = train(cluster, calls=calls)
    left = BATCHES * (3 - stop_at)
    assert order_of_rest[-left:] == order[-left:] and same(rest, whole)
    epochs = [sum(order[BATCHES * n : BATCHES * (n + 1)], []) for n in range(4)]
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs) and epochs[0] != epochs[1]
    assert sorted(epochs[0]) == pytest.approx(sorted(X.sum(1).tolist()))
    assert calls == [1]


class InTwos(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return X[2 * index : 2 * index + 2], Y[2 * index : 2 * index + 2]


class Numpy:
    """As ``tf.data.Dataset`` has it."""

    def as_numpy_iterator(self) -> Any:
        return zip(X[:6], Y[:6])


FORMS = {
    "arrays": (X[:6], Y[:6]),
    "dict": {"x": X[:6], "y": Y[:6]},
    "tensors": (keras.ops.convert_to_tensor(X[:6]), keras.ops.convert_to_tensor(Y[:6])),
    "PyDataset": InTwos(),
    "tf.data": Numpy(),
    "records": list(zip(X[:6], Y[:6])),
}


@pytest.mark.parametrize("form", FORMS)
def test_whatever_keras_takes_is_taken_apart_and_batched_again(off_cluster: Path, form: str) -> None:
    with det.core.init() as core_context:
        cached = det.keras.DataLayer(core_context).cache_train_dataset(form, 1)(lambda: FORMS[form])()
        assert len(cached) == 6
        first, last = cached.batch(4)[0], cached.batch(4)[1]
        x, y = (first["x"], first["y"]) if form == "dict" else first
        assert np.array_equal(x, X[:4]) and np.array_equal(y, Y[:4])
        assert len(keras.tree.flatten(last)[0]) == 2 and len(cached.batch(4, drop_remainder=True)) == 1
        if form != "dict":
            assert np.array_equal(cached.map(lambda x, y: (2 * x, y)).batch(6)[0][0], 2 * X[:6])


@pytest.mark.parametrize(
    ("made", "error"),
    [(None, "returns arrays, a PyDataset"), ("text", "not a str"), ((X[:3], Y[:2]), "equally long"), (7, "not a int")],
)
def test_what_is_no_dataset_is_refused(off_cluster: Path, made: Any, error: str) -> None:
    with det.core.init() as core_context:
        with pytest.raises((TypeError, ValueError), match=error):
            det.keras.DataLayer(core_context).cache_train_dataset("x", 1)(lambda: made)()


def test_workers_get_batches_of_their_own_and_equally_many(off_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with det.core.init() as core_context:
        layer = det.keras.DataLayer(core_context, seed=3)
        cached = layer.cache_train_dataset("x", 1, shuffle=True)(lambda: np.arange(50))()
        whole = layer.cache_validation_dataset("y", 1)(lambda: np.arange(50))()
        found = []
        for rank in range(2):
            monkeypatch.setattr(core_context.distributed, "rank", rank)
            monkeypatch.setattr(core_context.distributed, "size", 2)
            batches = cached.batch(8)
            found.append([batches[n].tolist() for n in range(len(batches))])
            assert len(whole.batch(8)) == 7, "each worker validates with all of it"
        assert [len(each) for each in found] == [3, 3]
        seen = sum(found[0] + found[1], [])
        assert len(set(seen)) == len(seen) == 48
        with pytest.raises(ValueError, match="for 2 workers"):
            cached.batch(50)
