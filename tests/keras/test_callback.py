"""``model.fit()`` with a DeterminedCallback: what it reports and saves, and that a stop changes nothing."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import Any, Iterator, List, Optional

import keras
import numpy as np
import pytest

import determined as det
from determined.keras import DeterminedCallback
from tests.core.conftest import Cluster
from tests.frameworks import reports, saved

X = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")
Y = (X.sum(1) > 0).astype("int32")
BATCHES = 7  # of 8, the last of 2


def build(lr: float = 0.05) -> keras.Model:
    layers: List[Any] = [
        keras.Input((4,)),
        keras.layers.Dense(8, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.3),
        keras.layers.Dense(2),
    ]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(lr), loss, metrics=["accuracy"])
    return model


class StopAt(keras.callbacks.Callback):
    """Asks for a stop, as the cluster does, in the first batch of an epoch."""

    def __init__(self, cluster: Cluster, epoch: Optional[int]) -> None:
        super().__init__()
        self._stop, self._at = cluster.attempt.stop, epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == self._at:
            self._stop.write_text('{"reason": "pause", "at": 0}')
            time.sleep(0.25)  # the file is looked at five times a second


def train(
    cluster: Cluster, *, epochs: int = 4, stop_at: Optional[int] = None, seed: int = 1, lr: float = 0.05, **options: Any
) -> keras.Model:
    """As a script of a user would, on the cluster; a new attempt each time."""
    cluster.enter()
    cluster.attempt.stop.unlink(missing_ok=True)
    if cluster.master is None:
        cluster.start_master()
    keras.utils.set_random_seed(seed)
    info = det.get_cluster_info()
    assert info is not None
    model = build(lr)
    plateau = keras.callbacks.ReduceLROnPlateau(monitor="loss", factor=0.5, patience=2, min_delta=10)
    with det.core.init() as core_context:
        defaults = {"checkpoint": info.latest_checkpoint, "continue_id": info.trial.trial_id}
        callback = DeterminedCallback(core_context, **{**defaults, "stateful_callbacks": [plateau], **options})
        callbacks = [StopAt(cluster, stop_at), plateau, callback]
        model.fit(X, Y, batch_size=8, epochs=epochs, validation_data=(X[:20], Y[:20]), callbacks=callbacks, verbose=2)
    return model


def same(one: keras.Model, other: keras.Model) -> bool:
    both = zip(one.get_weights() + _optimizer(one), other.get_weights() + _optimizer(other))
    return all(np.array_equal(a, b) for a, b in both)


def _optimizer(model: keras.Model) -> List[Any]:
    return [keras.ops.convert_to_numpy(variable) for variable in model.optimizer.variables]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> keras.Model:
    """The same training without a stop, on a cluster of its own."""
    other = Cluster(tmp_path_factory.mktemp("whole"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DETHPC_INFO", "")
        other.start_master()
        model = train(other)
    assert other.master is not None
    other.master.close()
    return model


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="the order of tf.data's shuffles is not kept")
@pytest.mark.parametrize("stop_at", [0, 1, 2])
def test_a_stop_after_any_epoch_changes_no_weight(cluster: Cluster, whole: keras.Model, stop_at: int) -> None:
    part = train(cluster, stop_at=stop_at)
    assert not same(part, whole)
    assert cluster.journal("ack")
    assert [one["steps_completed"] for one in saved(cluster)] == [BATCHES * (n + 1) for n in range(stop_at + 1)]
    cluster.info["latest_checkpoint"] = saved(cluster)[-1]["uuid"]
    rest = train(cluster, seed=2)
    assert same(rest, whole)
    assert [one["steps_completed"] for one in reports(cluster, "validation")] == [7, 14, 21, 28]
    assert [one["steps_completed"] for one in reports(cluster, "training")] == [7, 14, 21, 28]
    assert float(rest.optimizer.learning_rate) == pytest.approx(0.0125 * 2)  # halved once: two epochs without progress


def test_a_stop_when_all_is_done_leaves_it_done(cluster: Cluster) -> None:
    train(cluster, epochs=2, stop_at=1)
    assert not cluster.journal("ack")
    assert cluster.journal("progress")[-1].data == {"progress": 1.0}
    cluster.info["latest_checkpoint"] = saved(cluster)[-1]["uuid"]
    train(cluster, epochs=2)  # as if its end had not been seen
    assert len(saved(cluster)) == 2


def test_reports_by_batches_and_checkpoints_at_the_end_alone(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    train(cluster, epochs=2, train_metrics_report_period=4, checkpoint_epochs=0)
    training = reports(cluster, "training")
    assert [one["steps_completed"] for one in training] == [4, 8, 12]
    assert training[0]["metrics"].keys() == {"loss", "accuracy", "epochs", "batches"}
    assert (training[1]["metrics"]["epochs"], training[1]["metrics"]["batches"]) == (2, 8)
    assert reports(cluster, "validation")[0]["metrics"].keys() == {"loss", "accuracy", "epochs", "batches"}
    assert [one["steps_completed"] for one in saved(cluster)] == [14]
    out = capsys.readouterr().out
    assert "epoch 2: 100% (7/7 batches) " in out and "━" not in out


def test_another_trainings_checkpoint_gives_its_weights_alone(cluster: Cluster) -> None:
    trained = train(cluster, epochs=1)
    cluster.info["latest_checkpoint"] = saved(cluster)[-1]["uuid"]
    cluster.info["trial"]["trial_id"] = 4

    class Look(DeterminedCallback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            super().on_epoch_begin(epoch, logs)
            assert all(np.array_equal(a, b) for a, b in zip(self.model.get_weights(), trained.get_weights()))
            assert (epoch, int(self.model.optimizer.iterations)) == (0, 0)

    cluster.enter()
    info = det.get_cluster_info()
    assert info is not None
    model = build(lr=0.01)
    with det.core.init() as core_context:
        look = Look(core_context, info.latest_checkpoint, info.trial.trial_id)
        model.fit(X, Y, batch_size=8, epochs=1, callbacks=[look], verbose=0)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.01)


def test_a_subclass_saves_the_model_its_own_way(cluster: Cluster, off_cluster: Path) -> None:
    class Whole(DeterminedCallback):
        def save_model(self, model: keras.Model, path: str, distributed: Any) -> None:
            model.save(f"{path}.keras")

        def load_model(self, model: keras.Model, path: str, distributed: Any) -> None:
            model.set_weights(keras.saving.load_model(f"{path}.keras").get_weights())

    cluster.enter()
    with det.core.init() as core_context:
        model = build()
        model.fit(X, Y, epochs=1, callbacks=[Whole(core_context, None, 1)], verbose=0)
        uuid = saved(cluster)[-1]["uuid"]
        assert (cluster.storage / uuid / "model_checkpoint.keras").exists()
        again = build()
        again.fit(X, Y, epochs=1, callbacks=[Whole(core_context, uuid, 1)], verbose=0)
    assert all(np.array_equal(a, b) for a, b in zip(again.get_weights(), model.get_weights()))


def test_a_checkpoint_may_be_read_until_the_first_batch(off_cluster: Path) -> None:
    told: List[str] = []

    class Told(DeterminedCallback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            told.append("epoch")
            super().on_epoch_begin(epoch, logs)

    with det.core.init() as core_context:
        model = build()
        model.fit(X, Y, epochs=1, callbacks=[DeterminedCallback(core_context, None, 1)], verbose=0)
        (saved,) = off_cluster.glob("checkpoints/*/callback_state")
        restore = core_context.checkpoint.restore_path

        @contextlib.contextmanager
        def restore_path(uuid: str) -> Iterator[Path]:
            with restore(uuid) as path:
                yield path
            told.append("left")

        core_context.checkpoint.restore_path = restore_path  # type: ignore[assignment, method-assign]
        model.fit(X, Y, epochs=2, callbacks=[Told(core_context, saved.parent.name, 1)], verbose=0)
    assert told == ["epoch", "left"]


def test_it_works_off_the_cluster(off_cluster: Path) -> None:
    with det.core.init() as core_context:
        model = build()
        model.fit(X, Y, epochs=2, callbacks=[DeterminedCallback(core_context, None, "mine")], verbose=0)
    assert len(list(off_cluster.glob("checkpoints/*/model_checkpoint.weights.h5"))) == 2


def test_test_mode_trains_one_batch(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETHPC_TEST_MODE", "1")
    train(cluster)
    assert [one["steps_completed"] for one in reports(cluster, "validation")] == [1]
    assert [one["steps_completed"] for one in saved(cluster)] == [1]


def test_a_length_that_differs_from_the_searchers_is_said(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    searcher = {"name": "adaptive_asha", "metric": "loss", "time_metric": "batches", "max_time": 14}
    cluster.info["trial"]["config"]["searcher"] = searcher
    train(cluster, epochs=2)
    assert "searcher" not in caplog.text
    searcher["max_time"] = 100
    train(cluster, epochs=2)
    assert "fit() trains 14 batches, and the searcher's configuration says 100" in caplog.text


@pytest.mark.parametrize("name", ["TFKerasTrial", "TFKerasTrialContext", "callbacks.EarlyStopping"])
def test_names_of_tfkerastrial_say_what_to_use(name: str) -> None:
    found: Any = det.keras
    for part in name.split("."):
        found = getattr(found, part)
    with pytest.raises(NotImplementedError, match="DeterminedCallback"):
        found()
    with pytest.raises(NotImplementedError, match="DeterminedCallback"):
        type("Mine", (found,), {"__module__": "model_def"})


def test_tensorboard_without_tensorflow_says_so(off_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with det.core.init() as core_context, pytest.raises(ImportError, match="writes with TensorFlow"):
        det.keras.TensorBoard(core_context)
