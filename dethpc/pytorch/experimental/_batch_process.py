"""``torch_batch_process()``: a dataset, shared by all slots, batch by batch, going on where it was stopped."""

from __future__ import annotations

import abc
import json
import logging
import math
import pathlib
import uuid
import warnings
from typing import Any, ContextManager, Dict, Optional, Set, Sized, Type

import torch
from torch import nn
from torch.utils import data

from dethpc import core
from dethpc.core._info import get_cluster_info
from dethpc.pytorch import _backend
from dethpc.pytorch._data import DataLoader, TorchData, _Data, to_device
from dethpc.pytorch._reducer import _PyTorchReducerContext
from dethpc.tensorboard.util import get_rank_aware_path

logger = logging.getLogger("dethpc.pytorch")


class TorchBatchProcessorContext(_PyTorchReducerContext):
    """What a processor gets to work with; ``device`` is where this worker computes."""

    def __init__(self, core_context: core.Context, storage_path: str) -> None:
        super().__init__(core_context.distributed.allgather)
        self._core_context = core_context
        self._storage_path = storage_path
        self._use_default_storage = False
        self.device = get_default_device(core_context)

    def get_hparams(self) -> Dict[str, Any]:
        """The trial's hyperparameters. Raises RuntimeError outside the cluster."""
        info = get_cluster_info()
        if info is None:
            raise RuntimeError("there are hyperparameters on the cluster alone")
        return info.trial.hparams

    def to_device(self, data: _Data, warned_types: Optional[Set[Type[Any]]] = None) -> TorchData:
        """``data`` with its tensors and arrays on this worker's device."""
        return to_device(data, self.device, warned_types)

    def prepare_model_for_inference(self, model: nn.Module) -> nn.Module:
        """``model`` on this worker's device, in evaluation mode."""
        model.eval()
        model.to(self.device)
        return model

    def get_tensorboard_path(self) -> pathlib.Path:
        """Where to write files for TensorBoard."""
        return self._core_context.train.get_tensorboard_path()

    def upload_path(self) -> ContextManager[pathlib.Path]:
        """A directory whose files are in checkpoint storage after the block, below a folder of this worker's. Files of the
        same name, from an earlier block, are replaced."""
        self._use_default_storage = True
        return self._core_context.checkpoint._store.synced_folder(self._storage_path)

    def report_metrics(self, group: str, steps_completed: int, metrics: Dict[str, Any]) -> None:
        """As ``core_context.train.report_metrics()``."""
        self._core_context.train.report_metrics(group, steps_completed, metrics)

    def report_task_using_model_version(self, model_version: Any) -> None:
        """As ``core_context.experimental.report_task_using_model_version()``."""
        self._core_context.experimental.report_task_using_model_version(model_version)

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """As ``core_context.experimental.report_task_using_checkpoint()``."""
        self._core_context.experimental.report_task_using_checkpoint(checkpoint)

    def get_distributed_rank(self) -> int:
        return self._core_context.distributed.get_rank()

    def get_distributed_size(self) -> int:
        return self._core_context.distributed.get_size()


def get_default_device(core_context: core.Context) -> torch.device:
    """The GPU of this worker's local rank, or the CPU where there is none."""
    if torch.cuda.device_count() == 0:
        return torch.device("cpu")
    return torch.device("cuda", core_context.distributed.local_rank)


class TorchBatchProcessor(metaclass=abc.ABCMeta):
    """What to do with each batch: subclass it, and hand the class to :func:`torch_batch_process`."""

    @abc.abstractmethod
    def __init__(self, context: TorchBatchProcessorContext) -> None:
        """Load the model."""

    @abc.abstractmethod
    def process_batch(self, batch: Any, batch_idx: int) -> None:
        """Process a batch. ``batch_idx`` counts this worker's batches, also those before a stop."""

    def on_checkpoint_start(self) -> None:
        """Before it is recorded how far the processing is: write out what must not be lost."""

    def on_finish(self) -> None:
        """After the last batch."""


def torch_batch_process(
    batch_processor_cls: Type[TorchBatchProcessor],
    dataset: data.Dataset,
    batch_size: Optional[int] = None,
    max_batches: Optional[int] = None,
    checkpoint_interval: int = 5,
    dataloader_kwargs: Optional[Dict[str, Any]] = None,
    distributed_context: Optional[core.DistributedContext] = None,
) -> None:
    """Process all of ``dataset``, which has a length, in order, each batch once, on one of the slots.

    ``batch_size``: records of a batch (also possible in ``dataloader_kwargs``; default 1). ``max_batches``: at most that many
    on each slot. ``checkpoint_interval``: after how many batches of a slot it is recorded how far the processing is, and
    looked whether to stop. ``dataloader_kwargs``: for the data loader, without samplers and shuffling. On the cluster it goes
    on where the trial was stopped. Metrics of the context's reducers are reported at the end as validation metrics.

    Raises ValueError, TypeError when ``dataset`` has no length.
    """
    options = _loader_options(dataloader_kwargs or {}, batch_size)
    if checkpoint_interval <= 0:
        raise ValueError(f"checkpoint_interval is at least 1, not {checkpoint_interval}")
    if not isinstance(dataset, Sized):
        raise TypeError("the dataset has no length: it needs __len__()")
    if distributed_context is None:
        distributed_context = _backend.initialize()
    with core.init(
        distributed=distributed_context,
        preempt_mode=core.PreemptMode.WorkersAskChief,
        tensorboard_mode=core.TensorboardMode.MANUAL,
    ) as core_context:
        _Process(core_context, dataset, options, checkpoint_interval).run(batch_processor_cls, max_batches)


class _Process:
    def __init__(
        self, core_context: core.Context, dataset: Any, options: Dict[str, Any], checkpoint_interval: int
    ) -> None:
        self._core = core_context
        self._distributed = core_context.distributed
        self._dataset = dataset
        self._options = options
        self._interval = checkpoint_interval
        info = get_cluster_info()
        self._latest = info.latest_checkpoint if info is not None else None
        self._on_cluster = info is not None and info.task_type == "TRIAL"

    def run(self, processor_class: Type[TorchBatchProcessor], max_batches: Optional[int]) -> None:
        skip, output = self._where_it_was()
        size, rank = self._distributed.size, self._distributed.rank
        context = TorchBatchProcessorContext(self._core, f"{output}/rank_{rank}")
        processor = processor_class(context=context)  # type: ignore[call-arg,unused-ignore]
        loader = DataLoader(self._dataset, shuffle=False, **self._options)
        batches = iter(loader.get_data_loader(skip=skip, num_replicas=size, rank=rank))
        # Some slots may have one batch less; all of them go round as often, so that they meet at each checkpoint.
        rounds = _rounds(max_batches, math.ceil(len(loader) / size))
        done = saved = skip
        for n in range(skip, rounds):
            batch = next(batches, batches)
            if batch is not batches:
                processor.process_batch(batch=batch, batch_idx=n)
            done = n + 1
            if done % self._interval == 0:
                self._save(processor, done, output)
                saved = done
                if rank == 0:
                    self._core.train.report_progress(min(1.0, done / rounds))
                if done < rounds and self._core.preempt.should_preempt():
                    self._report(context, done)
                    return
        if done > saved:
            self._save(processor, done, output)
        self._report(context, done)
        self._upload_tensorboard()
        processor.on_finish()
        if rank == 0:
            self._core.train.report_progress(1.0)
            if context._use_default_storage:
                logger.info("the files are in %s/%s", self._core.checkpoint._store, output)
        self._distributed.gather(None)

    def _where_it_was(self) -> tuple[int, str]:
        """Batches of each slot that are done, and the folder for what comes out."""
        output = str(self._distributed.broadcast(str(uuid.uuid4())))
        if self._latest is None:
            return 0, output
        with self._core.checkpoint.restore_path(self._latest) as path:
            metadata = json.loads((path / "metadata.json").read_text())
        if metadata.get("slots", self._distributed.size) != self._distributed.size:
            raise ValueError("the dataset was shared by another number of slots before the stop: go on with as many")
        return int(metadata["steps_completed"]), str(metadata.get("default_output_uuid") or output)

    def _save(self, processor: TorchBatchProcessor, done: int, output: str) -> None:
        processor.on_checkpoint_start()
        self._upload_tensorboard()
        self._distributed.gather(None)  # all have done as much
        if self._distributed.rank == 0:
            metadata = {"steps_completed": done, "default_output_uuid": output, "slots": self._distributed.size}
            with self._core.checkpoint.store_path(metadata) as (path, _):
                (path / "batch_completed.json").write_text(json.dumps({"batch_completed": done}))

    def _report(self, context: TorchBatchProcessorContext, done: int) -> None:
        metrics = context.reduce_metrics(for_training=False)
        if metrics and self._distributed.rank == 0:
            self._core.train.report_validation_metrics(done, metrics)

    def _upload_tensorboard(self) -> None:
        if self._on_cluster:
            self._core.train.upload_tensorboard_files(mangler=get_rank_aware_path)


def _loader_options(options: Dict[str, Any], batch_size: Optional[int]) -> Dict[str, Any]:
    if options.get("shuffle"):
        raise ValueError("shuffle: the batches are shared and counted in the dataset's own order")
    for name in ("sampler", "batch_sampler"):
        if name in options:
            raise ValueError(f"{name}: the batches are chosen here")
    if batch_size is not None and "batch_size" in options:
        raise ValueError("batch_size is given twice")
    options = {name: value for name, value in options.items() if name != "shuffle"}
    return {"batch_size": 1 if batch_size is None else batch_size, **options}


def _rounds(max_batches: Optional[int], whole: int) -> int:
    if max_batches is None or 0 < max_batches <= whole:
        return whole if max_batches is None else max_batches
    warnings.warn(f"max_batches={max_batches} is ignored: each slot has {whole} batches", stacklevel=3)
    return whole
