"""The callback that ties a Lightning Trainer to the cluster."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pathlib
import pickle
from typing import Any, Dict, Optional, Union

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from dethpc import core
from dethpc.core._random import generators, restore_generators
from dethpc.core._searcher import _other_length
from dethpc.lightning._logger import DeterminedLogger, batches_trained, epochs_trained
from dethpc.lightning._other_checkpoints import StagedFiles, bring_back
from dethpc.lightning._saving import Saving

logger = logging.getLogger("dethpc.lightning")

TEST_MODE = "DETHPC_TEST_MODE"
"""Set by ``det experiment create --local --test-mode``: train one batch, validate, save."""

_CHECKPOINT, _STATE = "checkpoint.ckpt", "state.json"


class DeterminedCallback(Checkpoint):
    """Reports metrics and progress, saves checkpoints, and lets ``trainer.fit()`` stop and go on. ::

        info = det.get_cluster_info()
        with det.core.init() as core_context:
            callback = DeterminedCallback(
                core_context, checkpoint=info.latest_checkpoint, continue_id=info.trial.trial_id
            )
            trainer = Trainer(max_epochs=10, callbacks=[callback])
            trainer.fit(model, datamodule=data, ckpt_path=callback.restore())

    ``checkpoint``: the uuid to start from, or None. ``continue_id``: kept in each checkpoint. Where the one in ``checkpoint``
    is the same, training goes on where that was saved; where it differs, the module's weights alone are loaded and training
    starts from scratch.

    ``checkpoint_epochs``: epochs between two checkpoints; 0: none but the one that is always saved when training ends or is
    asked to stop. ``preempt_period``: ``"epoch"`` looks for a stop after each epoch, and going on then gives the very weights of
    a training that was not stopped. A number of batches looks that often: a stop is quicker, and what is left of the epoch is
    trained on data in a new order, unless the data loader keeps its state (``state_dict()``).

    It takes the place of the ModelCheckpoint that a Trainer adds by itself: without another one, ``ckpt_path="best"`` is the last
    checkpoint. What other ModelCheckpoints have kept goes with each checkpoint and is there again when training goes on. It adds
    a :class:`DeterminedLogger` to the Trainer unless it has one.
    """

    def __init__(
        self,
        core_context: core.Context,
        checkpoint: Optional[str],
        continue_id: Union[int, str],
        *,
        checkpoint_epochs: int = 1,
        preempt_period: Union[int, str] = "epoch",
    ) -> None:
        if preempt_period != "epoch" and not (isinstance(preempt_period, int) and preempt_period > 0):
            raise ValueError(f"preempt_period is 'epoch' or a number of batches, not {preempt_period!r}")
        super().__init__()
        self._core = core_context
        self._checkpoint = checkpoint
        self._continue_id = continue_id
        self._checkpoint_epochs = checkpoint_epochs
        self._preempt_period = preempt_period
        self._chief = core_context.distributed.rank == 0
        self._logger = DeterminedLogger(core_context)
        self._files = contextlib.ExitStack()  # the checkpoint, until it has been read
        self._found = contextlib.ExitStack()  # the last checkpoint, for whoever asks for its file
        self._last = self._last_file = ""
        self._restored: Optional[pathlib.Path] = None
        self._random: Optional[Dict[str, Any]] = None
        self._weights: Optional[pathlib.Path] = None
        self._saving = Saving()
        self._percent = 0
        self._left_epoch = False  # stopped within an epoch

    def restore(self) -> Optional[str]:
        """For ``trainer.fit(ckpt_path=...)``: the file to go on from, or None to start from scratch. All workers."""
        if self._checkpoint is None:
            return None
        path = self._files.enter_context(self._core.checkpoint.restore_path(self._checkpoint))
        state = json.loads((path / _STATE).read_text())
        if state["continue_id"] != self._continue_id:
            logger.info(
                "the checkpoint is of another training: its weights are taken, and training starts from scratch"
            )
            self._weights = path / _CHECKPOINT
            return None
        self._restored = path
        random = path / self._random_file()
        self._random = pickle.loads(random.read_bytes()) if random.exists() else None  # nosec B301  # the trial's own
        return str(path / _CHECKPOINT)

    @property
    def best_model_path(self) -> str:
        """The file of the last checkpoint, as of a ModelCheckpoint that monitors nothing; "" before there is one. Any worker."""
        if self._last and not self._last_file:
            self._found.close()
            path = self._found.enter_context(
                self._core.checkpoint.restore_path(self._last, core.DownloadMode.NoSharedDownload)
            )
            self._last_file = str(path / _CHECKPOINT)
        return self._last_file

    @property
    def last_model_path(self) -> str:
        return self.best_model_path

    # --- around the training --------------------------------------------------------------------------------------------

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        mine = [one for one in trainer.loggers if isinstance(one, DeterminedLogger)]
        if mine:
            self._logger = mine[0]
        else:
            trainer.loggers = [*trainer.loggers, self._logger]
        self._logger._trainer = trainer
        # Last of all: what others have kept is stored too, and the Trainer's own checkpoint callback is the first one.
        trainer.callbacks = [*(one for one in trainer.callbacks if one is not self), self]
        if self._weights is not None:
            if self._weights.is_dir():
                raise RuntimeError("weights cannot be taken from a checkpoint that a strategy has saved in shards")
            checkpoint = torch.load(self._weights, map_location="cpu", weights_only=False)  # nosec B614  # the trial's own
            pl_module.load_state_dict(checkpoint["state_dict"])
            self._weights = None

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: Dict[str, Any]) -> None:
        if self._restored is not None:
            bring_back(trainer, checkpoint, self._restored, files=self._core.distributed.local_rank == 0)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # The last hook before data loaders draw: what follows is as it was after the epoch that was saved.
        if self._random is not None:
            restore_generators(self._random)
            self._random = None

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._core._take_term_from("lightning")  # whose handler ends the training after the batch, without a checkpoint

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._core._take_term_from("lightning")
        self._restored = None
        self._files.close()
        self._left_epoch = False
        if self._chief and not os.environ.get(TEST_MODE):
            steps = trainer.max_steps if trainer.max_steps > 0 else None
            epochs = trainer.max_epochs if trainer.max_epochs is not None and trainer.max_epochs > 0 else None
            info = self._core.info
            trial = info is not None and info.task_type == "TRIAL"
            other = _other_length(info.trial._settings.searcher, epochs, steps) if info is not None and trial else None
            if other:
                logger.warning("the Trainer %s", other)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._core.checkpoint.wait()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._files.close()

    # --- training -------------------------------------------------------------------------------------------------------

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._say("training")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._chief:
            self._report_progress(trainer)
        if os.environ.get(TEST_MODE):
            _stop(trainer)
            return
        period = self._preempt_period
        if period == "epoch" or trainer.is_last_batch or _is_over(trainer):
            return
        gradients_wait = (batch_idx + 1) % trainer.accumulate_grad_batches != 0
        due = batches_trained(trainer) % int(period) == 0
        if due and not gradients_wait and self._core.preempt.should_preempt():
            # Now: after an epoch that was left early, Lightning would go on with the next one.
            self._save(trainer)
            self._left_epoch = True
            _stop(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._say("validating")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._logger._validated()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called after other callbacks', as Lightning puts those that save last."""
        if self._left_epoch:
            return
        epochs = trainer.current_epoch + 1
        over = _is_over(trainer) or (trainer.max_epochs or 0) == epochs
        # A stop that comes when nothing is left to do must not make the training look unfinished.
        stopping = not over and self._core.preempt.should_preempt()
        if over or stopping or (self._checkpoint_epochs > 0 and epochs % self._checkpoint_epochs == 0):
            self._save(trainer)
        if stopping:
            _stop(trainer)

    # --- words to the outside -------------------------------------------------------------------------------------------

    def _say(self, status: str) -> None:
        if self._chief:
            self._core.train.set_status(status)

    def _report_progress(self, trainer: Trainer) -> None:
        parts = [0.0]
        if trainer.max_steps > 0:
            parts.append(trainer.global_step / trainer.max_steps)
        if trainer.max_epochs is not None and trainer.max_epochs > 0:
            parts.append(epochs_trained(trainer) / trainer.max_epochs)
        progress = min(1.0, max(parts))
        if int(progress * 100) > self._percent:
            self._percent = int(progress * 100)
            self._core.train.report_progress(progress)

    # --- checkpoints ----------------------------------------------------------------------------------------------------

    def _save(self, trainer: Trainer) -> None:
        self._say("checkpointing")
        metadata = {"steps_completed": batches_trained(trainer)}
        checkpoint, random = self._core.checkpoint, pickle.dumps(generators())
        checkpoint.wait()  # it may still be writing the last copy
        caught = self._saving.caught(trainer)
        others = StagedFiles(trainer) if self._chief else None
        self._last_file = ""

        def write(path: pathlib.Path) -> None:
            (path / self._random_file()).write_bytes(random)
            if self._chief:
                (path / _STATE).write_text(json.dumps({"continue_id": self._continue_id, **metadata}))
            if others is not None:
                others.write(path)
            if caught is not None:
                caught[0](path / _CHECKPOINT)

        if caught is not None and caught[1]:
            self._last = checkpoint.store_async(write, metadata, shard=True)
            return
        with checkpoint.store_path_async(metadata, shard=True) as (path, self._last):
            write(path)
            if caught is None:
                trainer.save_checkpoint(path / _CHECKPOINT)

    def _random_file(self) -> str:
        distributed = self._core.distributed
        return f"random-{distributed.rank}-of-{distributed.size}.pkl"


def _is_over(trainer: Trainer) -> bool:
    return bool(trainer.should_stop) or 0 < trainer.max_steps <= trainer.global_step


def _stop(trainer: Trainer) -> None:
    """Even where the Trainer was told to train a minimum."""
    trainer.fit_loop.min_epochs = None
    trainer.fit_loop.epoch_loop.min_steps = None
    trainer.should_stop = True
