"""The callback that ties ``model.fit()`` to the cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import pickle
import shutil
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

import keras

from dethpc import core
from dethpc.core._info import get_cluster_info
from dethpc.core._random import generators, restore_generators
from dethpc.core._searcher import _other_length
from dethpc.keras import _cached, _stateful
from dethpc.keras._progress import Progress

logger = logging.getLogger("dethpc.keras")

TEST_MODE = "DETHPC_TEST_MODE"
"""Set by ``det experiment create --local --test-mode``: train one batch, validate, save."""

_MODEL, _STATE = "model_checkpoint", "callback_state"

Logs = Optional[Dict[str, Any]]


class DeterminedCallback(keras.callbacks.ProgbarLogger):
    """Reports metrics and progress, saves checkpoints, and lets ``model.fit()`` stop and go on. ::

        info = det.get_cluster_info()
        with det.core.init() as core_context:
            callback = DeterminedCallback(
                core_context, checkpoint=info.latest_checkpoint, continue_id=info.trial.trial_id
            )
            model.fit(x, y, validation_data=(x2, y2), epochs=10, callbacks=[callback])

    ``checkpoint``: the uuid to start from, or None. ``continue_id``: kept in each checkpoint. Where the one in ``checkpoint``
    is the same, training goes on after its last epoch, whatever ``initial_epoch`` says; where it differs, the weights alone are
    loaded and training begins at epoch 0 with the optimizer as it was compiled.

    ``train_metrics_report_period``: ``"epoch"``, or a number of batches. ``checkpoint_epochs``: epochs between two checkpoints;
    0: none but the one that is always saved when training ends or is asked to stop. ``stateful_callbacks``: other callbacks of
    this ``fit()`` whose state is kept, such as EarlyStopping and ReduceLROnPlateau; list them before this one.

    A stop is looked for after each epoch. Keras's progress bar gives way to lines that suit a log. Not to be used together with
    BackupAndRestore. How the model is saved can be changed in a subclass: :meth:`save_model`, :meth:`load_model`.

    Going on gives the very weights of a training that was not stopped where the backend's generators can be restored (torch), with
    the same number of workers; the states of Keras's seed generators inside of layers are kept.
    """

    def __init__(
        self,
        core_context: core.Context,
        checkpoint: Optional[str],
        continue_id: Union[int, str],
        *,
        train_metrics_report_period: Union[int, str] = "epoch",
        checkpoint_epochs: int = 1,
        stateful_callbacks: Sequence[keras.callbacks.Callback] = (),
    ) -> None:
        if train_metrics_report_period != "epoch" and not (
            isinstance(train_metrics_report_period, int) and train_metrics_report_period > 0
        ):
            raise ValueError(
                f"train_metrics_report_period is 'epoch' or a number of batches, not {train_metrics_report_period!r}"
            )
        super().__init__()
        self._core = core_context
        self._checkpoint = checkpoint
        self._continue_id = continue_id
        self._report_period = train_metrics_report_period
        self._checkpoint_epochs = checkpoint_epochs
        self._chief = core_context.distributed.rank == 0
        self._progress = Progress()
        self._stateful, self._beginning = list(stateful_callbacks), False
        self._restored: Dict[str, Any] = {}
        self._restoring = contextlib.ExitStack()
        self._epoch = -1
        self._steps_completed = 0
        self._epoch_began_at = 0  # steps
        self._trained_epoch = self._saved_epoch = -1
        info = get_cluster_info()
        on_trial = info is not None and info.task_type == "TRIAL"
        self._searcher = info.trial._settings.searcher if info is not None and on_trial else None

    # --- around the training --------------------------------------------------------------------------------------------

    def set_params(self, params: Dict[str, Any]) -> None:
        self.params = params or {}
        self._progress.verbose = self._chief and self.params.get("verbose", 0) != 0

    def set_model(self, model: keras.Model) -> None:
        if not isinstance(model, keras.Model):
            raise TypeError(
                f"DeterminedCallback is for models of Keras 3, and this is a {type(model).__module__}.{type(model).__name__}: "
                "unset TF_USE_LEGACY_KERAS"
            )
        super().set_model(model)

    def on_train_begin(self, logs: Logs = None) -> None:
        self._beginning = True
        self._trained_epoch = self._saved_epoch = -1
        if self._checkpoint is not None:
            self._say("restoring")
            with contextlib.ExitStack() as restoring:
                self._load(restoring.enter_context(self._core.checkpoint.restore_path(self._checkpoint)))
                # A load_model() of the user's may leave reading to the first batch.
                self._restoring = restoring.pop_all()
            self._checkpoint = None  # another fit() goes on from where this one is
        self._compare_with_search()

    def on_train_end(self, logs: Logs = None) -> None:
        self._restoring.close()
        self.model._initial_epoch = None
        if self._trained_epoch > self._saved_epoch:
            self._save(self._trained_epoch)
        self._core.checkpoint.wait()
        self._say("finishing")

    # --- training -------------------------------------------------------------------------------------------------------

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        if self._beginning:  # all callbacks have begun, and nothing has been drawn yet
            self._beginning = False
            _stateful.restore(self._stateful, self._restored.get("callbacks") or [])
            self._restore_random()
        self._epoch, self._epoch_began_at = epoch, self._steps_completed
        _cached.begin_epoch(self._core, epoch)
        self._say("training")
        self._progress.begin(f"epoch {epoch + 1}", self.params.get("steps"))

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._restoring.close()
        before = self._steps_completed
        self._steps_completed = self._epoch_began_at + batch + 1  # several batches may be executed as one
        period = self._report_period
        if self._chief and isinstance(period, int) and self._steps_completed // period > before // period:
            self._report("training", logs)
        self._progress.done(batch + 1, logs)
        if os.environ.get(TEST_MODE):
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._trained_epoch = epoch
        epochs = self.params.get("epochs")
        if self._chief:
            if self._report_period == "epoch":
                self._report("training", {k: v for k, v in (logs or {}).items() if not k.startswith("val_")})
            if epochs:
                self._core.train.report_progress(min(1.0, (epoch + 1) / epochs))
        if self._checkpoint_epochs > 0 and (epoch + 1) % self._checkpoint_epochs == 0:
            self._save(epoch)
        # A stop that comes when nothing is left to do must not make the training look unfinished.
        over = self.model.stop_training or (epochs and epoch + 1 >= epochs)
        if not over and self._core.preempt.should_preempt():
            self.model.stop_training = True

    # --- validation -----------------------------------------------------------------------------------------------------

    def on_test_begin(self, logs: Logs = None) -> None:
        self._say("validating")
        self._progress.begin(f"validation after epoch {self._epoch + 1}", None)

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        pass

    def on_test_end(self, logs: Logs = None) -> None:
        if self._chief:
            self._report("validation", logs)
            self._progress.end(logs)

    # ProgbarLogger's, not wanted here.

    def on_predict_begin(self, logs: Logs = None) -> None:
        pass

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        pass

    def on_predict_end(self, logs: Logs = None) -> None:
        pass

    # --- words to the outside -------------------------------------------------------------------------------------------

    def _say(self, status: str) -> None:
        if self._chief:
            self._core.train.set_status(status)

    def _report(self, group: str, logs: Logs) -> None:
        """With how far the training is, by which a search compares trials."""
        time_metrics = {"epochs": self._epoch + 1, "batches": self._steps_completed}
        metrics = {name: value for name, value in (logs or {}).items() if name not in ("batch", "size")}
        self._core.train.report_metrics(group, self._steps_completed, {**time_metrics, **metrics})

    def _compare_with_search(self) -> None:
        """A search that compares trials on the way reckons with its own full length."""
        if self._searcher is None or not self._chief or os.environ.get(TEST_MODE):
            return
        epochs, steps = self.params.get("epochs"), self.params.get("steps")
        other = _other_length(self._searcher, epochs, epochs * steps if epochs and steps else None)
        if other:
            logger.warning("fit() %s", other)

    # --- checkpoints ----------------------------------------------------------------------------------------------------

    def _save(self, epoch: int) -> None:
        self._saved_epoch = epoch
        self._say("checkpointing")
        # All workers write: some strategies save together, and each has random generators of its own.
        with self._core.checkpoint.store_path_async({"steps_completed": self._steps_completed}, shard=True) as (
            path,
            _,
        ):
            self.save_model(self.model, str(path / _MODEL), self._core.distributed)
            (path / self._random_file()).write_bytes(pickle.dumps({**generators(), "seeds": _seeds(self.model)}))
            if self._chief:
                state = {
                    "epoch": epoch,
                    "steps_completed": self._steps_completed,
                    "continue_id": self._continue_id,
                    "callbacks": _stateful.states(self._stateful),
                }
                (path / _STATE).write_bytes(pickle.dumps(state))

    def _load(self, path: pathlib.Path) -> None:
        state: Dict[str, Any] = {}
        if (path / _STATE).exists():
            state = pickle.loads((path / _STATE).read_bytes())  # nosec B301  # the trial's own checkpoint
        continues = state.get("continue_id", object()) == self._continue_id
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)  # else its state would not be loaded
        with contextlib.nullcontext() if continues else _keeping(optimizer):
            self.load_model(self.model, str(path / _MODEL), self._core.distributed)
        if not continues:
            logger.info(
                "the checkpoint is of another training: its weights are taken, and training starts from scratch"
            )
            return
        self._restored = state
        self._steps_completed = state["steps_completed"]
        self._epoch = self._saved_epoch = self._trained_epoch = state["epoch"]
        if (path / self._random_file()).exists():
            self._restored["random"] = pickle.loads((path / self._random_file()).read_bytes())  # nosec B301  # the trial's own
        self.model._initial_epoch = state["epoch"] + 1  # as BackupAndRestore does it; fit() looks at it next

    def _restore_random(self) -> None:
        states, self._restored = self._restored.get("random"), {}
        if states is not None:
            for variable, value in zip(_seed_variables(self.model), states.pop("seeds")):
                variable.assign(value)
            restore_generators(states)

    def _random_file(self) -> str:
        distributed = self._core.distributed
        return f"random-{distributed.rank}-of-{distributed.size}.pkl"

    def save_model(self, model: keras.Model, path: str, distributed: core.DistributedContext) -> None:
        """Save the model to ``path``, a name inside of the checkpoint without an ending; all workers are called.

        For subclasses. Here: ``model.save_weights(path + ".weights.h5")``, with the optimizer's state, on the chief; with
        TensorFlow the others save as well, as its strategies want, and throw it away.
        """
        if distributed.rank == 0:
            model.save_weights(f"{path}.weights.h5")
        elif keras.backend.backend() == "tensorflow":
            folder = tempfile.mkdtemp(prefix="keras-worker-")
            try:
                model.save_weights(os.path.join(folder, "unused.weights.h5"))
            finally:
                shutil.rmtree(folder)

    def load_model(self, model: keras.Model, path: str, distributed: core.DistributedContext) -> None:
        """Load what :meth:`save_model` saved to ``path``; all workers are called. For subclasses."""
        model.load_weights(f"{path}.weights.h5")


@contextlib.contextmanager
def _keeping(optimizer: Any) -> Iterator[None]:
    """Whatever the block loads, the optimizer stays as it was compiled: learning rate, moments, iterations."""
    variables = [] if optimizer is None else list(optimizer.variables)
    values = [keras.ops.convert_to_numpy(variable) for variable in variables]
    yield
    for variable, value in zip(variables, values):
        variable.assign(value)


def _seed_variables(model: keras.Model) -> List[Any]:
    """Of the seed generators inside of layers such as Dropout. They are no weights, so they are not saved with them."""
    return [v for v in model.non_trainable_variables if v.path.endswith("seed_generator_state")]


def _seeds(model: keras.Model) -> List[Any]:
    return [keras.ops.convert_to_numpy(variable) for variable in _seed_variables(model)]
