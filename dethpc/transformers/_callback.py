"""The callback that ties ``transformers.Trainer`` to the cluster."""

from __future__ import annotations

import json
import logging
import os
import pathlib
import shutil
from typing import Any, Dict, List, Optional, Sequence

import transformers
from transformers import trainer_utils

from dethpc import core
from dethpc.core._info import get_cluster_info
from dethpc.domain.trial_config import SearcherConfig
from dethpc.rundir.files import link_or_copy
from dethpc.transformers._reports import Reports
from dethpc.transformers._search import check_length

logger = logging.getLogger("dethpc.transformers")

TEST_MODE = "DETHPC_TEST_MODE"
"""Set by ``det experiment create --local --test-mode``: train one step, evaluate, save."""

_SPEED = ("_runtime", "_per_second", "_compilation_time")
_GROUPS = {"eval_": "validation", "test_": "test"}
_TO_GO_ON = shutil.ignore_patterns("optimizer*", "scheduler*", "scaler*", "rng_state*")
"""Files that only a training that goes on from the checkpoint needs."""


class DetCallback(transformers.TrainerCallback):
    """Reports what the Trainer logs, uploads its checkpoints, and lets it stop and go on. ::

        with det.core.init() as core_context:
            trainer = Trainer(model, args, callbacks=[DetCallback(core_context, args)], ...)
            trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)

    ``args``: the TrainingArguments of the Trainer. When the trial goes on, its latest checkpoint is copied to
    ``args.output_dir`` and ``args.resume_from_checkpoint`` set to it; make the callback before ``train()`` is called.

    ``filter_metrics``: report metrics whose names contain one of these, and what the search needs; None: all.
    ``user_data``: stored in every checkpoint as ``my_data.json``.

    What is logged for one step by several calls, as by ``self.log`` in a ``compute_loss`` or for several evaluation datasets, is
    one report. Each checkpoint holds the model of the best one so far as well (``load_best_model_at_end``).

    A stop is looked for after each step; the Trainer then saves and ends. At the end of the training it evaluates (if
    ``args.do_eval``, which any ``eval_strategy`` implies) and saves, unless it has done so at that step. Raises ValueError when
    the Trainer's length is not the one that the search reckons with, and MetricMissing when an evaluation lacks
    the searcher's metric.
    """

    def __init__(
        self,
        core_context: core.Context,
        args: transformers.TrainingArguments,
        filter_metrics: Optional[List[str]] = None,
        user_data: Optional[Dict[str, Any]] = None,
    ) -> None:
        super().__init__()
        self.core_context = core_context
        self.user_data = user_data
        self.info = get_cluster_info()
        self._searcher: Optional[SearcherConfig] = None
        self._trial_id: Optional[int] = None
        if self.info is not None and self.info.task_type == "TRIAL":
            self._searcher = self.info.trial._settings.searcher
            self._trial_id = self.info.trial.trial_id
            if not os.environ.get(TEST_MODE):
                check_length(self._searcher, args)
        needed = [self._searcher.metric, self._searcher.time_metric] if self._searcher else []
        self.filter_metrics = [*filter_metrics, *filter(None, needed)] if filter_metrics else None
        self._reports = Reports(core_context, self._searcher)
        self._in_step = False
        self._evaluated = self._saved = -1  # the step of the last one
        self._percent = 0
        self._preempted = False
        self._kept: Optional[pathlib.Path] = None  # what is being stored, on the machine's first worker
        self.load_last_checkpoint(args)

    def load_last_checkpoint(self, args: transformers.TrainingArguments) -> None:
        """Copy the checkpoint to go on from, if there is one, and say so in ``args``. All workers."""
        latest = self.info.latest_checkpoint if self.info is not None else None
        if latest is None:
            return
        if getattr(args, "overwrite_output_dir", False):  # gone from transformers 5
            logger.info("overwrite_output_dir is set: training starts from scratch, not from checkpoint %s", latest)
            return
        # All files on every machine: DeepSpeed needs the shards of all workers to go on.
        self.core_context.checkpoint.download(latest, args.output_dir)
        # A directory that outlives the job may hold later checkpoints, of steps that no longer count.
        metadata = json.loads((pathlib.Path(args.output_dir) / "metadata.json").read_text())
        folder = os.path.join(args.output_dir, f"checkpoint-{metadata['steps_completed']}")
        args.resume_from_checkpoint = (
            folder if os.path.isdir(folder) else trainer_utils.get_last_checkpoint(args.output_dir)
        )
        logger.info("going on from checkpoint %s, in %s", latest, args.resume_from_checkpoint)

    # --- reports --------------------------------------------------------------------------------------------------------

    def on_train_begin(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **kwargs: Any,
    ) -> None:
        self._reports.training = True
        best = state.best_model_checkpoint
        if best is not None and not os.path.isdir(best):  # it was saved in another job's directory
            here = os.path.join(args.output_dir, os.path.basename(best))
            state.best_model_checkpoint = here if os.path.isdir(here) else best

    def on_step_begin(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **kwargs: Any,
    ) -> None:
        self._reports.send()
        self._in_step = True

    def on_log(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        logs: Optional[Dict[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        if not logs or not state.is_world_process_zero or (self._preempted and "train_runtime" in logs):
            return  # the last are means of a training that goes on later
        # What the model logs while a step is made belongs to that step, which the Trainer counts when it is over.
        step = state.global_step + int(self._in_step)
        self._reports.add(_group(logs), step, state.epoch, self._metrics(logs))

    def on_evaluate(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        metrics: Optional[Dict[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        self._evaluated = state.global_step
        self._reports.evaluated(metrics or {})

    def _metrics(self, logs: Dict[str, Any]) -> Dict[str, Any]:
        """Without the speed, and without ``epoch``, which is rounded."""
        return {
            name: value
            for name, value in logs.items()
            if name != "epoch"
            and not name.endswith(_SPEED)
            and (self.filter_metrics is None or any(part in name for part in self.filter_metrics))
        }

    def _report_progress(self, state: transformers.TrainerState) -> None:
        if state.is_world_process_zero and state.max_steps > 0:
            progress = min(1.0, state.global_step / state.max_steps)
            if int(progress * 100) > self._percent:
                self._percent = int(progress * 100)
                self.core_context.train.report_progress(progress)

    # --- steps ----------------------------------------------------------------------------------------------------------

    def on_step_end(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **kwargs: Any,
    ) -> None:
        self._in_step = False
        self._report_progress(state)
        if os.environ.get(TEST_MODE):
            control.should_training_stop = True
            return
        # A stop that comes when nothing is left to do must not make the training look unfinished.
        over = control.should_training_stop or state.global_step >= state.max_steps
        if not over and self.core_context.preempt.should_preempt():
            self._preempted = control.should_training_stop = True  # saved at what the Trainer takes for the epoch's end

    def on_epoch_end(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **kwargs: Any,
    ) -> None:
        if not control.should_training_stop and state.global_step < state.max_steps:
            return
        if self._preempted and state.epoch != int(state.epoch or 0):
            # The Trainer takes a stop for the epoch's end. An evaluation now takes time, and draws from the random generators.
            control.should_evaluate = False
        if not self._preempted and self._evaluated != state.global_step:
            control.should_evaluate = bool(args.do_eval)
        if self._saved != state.global_step:
            control.should_save = True

    # --- checkpoints ----------------------------------------------------------------------------------------------------

    def on_save(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **kwargs: Any,
    ) -> None:
        self._reports.send()
        self._saved = state.global_step
        folder = f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and self.user_data is not None:
            (pathlib.Path(args.output_dir) / folder / "my_data.json").write_text(json.dumps(self.user_data))
        metadata: Dict[str, Any] = {"steps_completed": state.global_step}
        if self._trial_id is not None:
            metadata["trial_id"] = self._trial_id
        distributed, checkpoint = self.core_context.distributed, self.core_context.checkpoint
        checkpoint.wait()
        distributed.allgather(None)  # a worker gets here when it has saved its own part; the others may not have
        if distributed.local_rank == 0:
            files = self._keep(pathlib.Path(args.output_dir), (folder, "runs"), state.best_model_checkpoint)
            checkpoint.upload_async(files, metadata, shard=True)
        else:  # has written into the same directory
            checkpoint.upload_async(None, metadata, shard=True)

    def _keep(self, output_dir: pathlib.Path, folders: Sequence[str], best: Optional[str]) -> pathlib.Path:
        """The folders once more, by other names of the same files: the Trainer may delete its own (``save_total_limit``) while they
        are being stored. With the model of ``best``, the best checkpoint so far, which the Trainer may load at its end."""
        self._remove_kept()
        self._kept = output_dir / f".dethpc-saving-{self.core_context.distributed.cross_rank}"
        self._remove_kept()  # what a run that was killed has left
        for folder in folders:
            if (output_dir / folder).is_dir():
                shutil.copytree(output_dir / folder, self._kept / folder, copy_function=link_or_copy)
        name = os.path.basename(best or "")
        if name and name not in folders and (output_dir / name).is_dir():
            shutil.copytree(output_dir / name, self._kept / name, ignore=_TO_GO_ON, copy_function=link_or_copy)
        return self._kept

    def _remove_kept(self) -> None:
        if self._kept is not None:
            shutil.rmtree(self._kept, ignore_errors=True)

    def on_train_end(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **kwargs: Any,
    ) -> None:
        self._reports.send()
        self._reports.training = False
        self.core_context.checkpoint.wait()
        self._remove_kept()


def _group(logs: Dict[str, Any]) -> str:
    return next((group for prefix, group in _GROUPS.items() if any(n.startswith(prefix) for n in logs)), "training")
