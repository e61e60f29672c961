"""Base class of the contexts of all trials."""

from __future__ import annotations

import abc
import logging
import pathlib
import time
from typing import Any, Dict, List, Optional, Set, Tuple, Type

import torch

from dethpc import core
from dethpc.errors import InvalidTrial, NotTraining
from dethpc.pytorch._data import TorchData, _Data, to_device
from dethpc.pytorch._reducer import _PyTorchReducerContext
from dethpc.trials import TrialContext

NO_BATCH_SIZE = (
    "there is no hyperparameter global_batch_size: add it to hyperparameters in the configuration, or, off the cluster, to "
    "init(hparams=...)"
)

logger = logging.getLogger("dethpc.pytorch")


class _TrialContext(TrialContext, _PyTorchReducerContext, metaclass=abc.ABCMeta):
    """What trials of all frameworks share: hyperparameters, configuration, batch sizes, where the training stands."""

    def __init__(
        self,
        core_context: core.Context,
        trial_seed: Optional[int],
        hparams: Optional[Dict[str, Any]],
        slots_per_trial: int,
        exp_conf: Optional[Dict[str, Any]],
        steps_completed: int,
    ) -> None:
        self._core = core_context
        self.distributed = core_context.distributed
        super().__init__(self.distributed.allgather)
        self._trial_seed = trial_seed
        self._hparams = hparams
        self._exp_conf = exp_conf
        self._steps_completed = steps_completed
        self._enable_tensorboard_logging = True
        self._tbd_writer: Optional[Any] = None
        self._last_tb_reset_ts: Optional[float] = None
        self._stop_requested = False
        self._current_batch_idx: Optional[int] = None
        self._epoch_len: Optional[int] = None
        self._per_slot_batch_size, self._global_batch_size = batch_sizes(hparams or {}, slots_per_trial)
        self._data_repro_checks_disabled = False
        self._is_pre_trainer = False
        self._to_device_warned_types: Set[Type[Any]] = set()
        self.device = self._init_device()
        self.models: List[Any] = []
        self.profiler: Any = None

    @abc.abstractmethod
    def _init_device(self) -> torch.device:
        """Where this worker trains."""

    def _set_is_pre_trainer(self) -> None:
        self._is_pre_trainer = True

    # --- what the trial is ----------------------------------------------------------------------------------------------

    def get_hparams(self) -> Dict[str, Any]:
        """The hyperparameters. Raises ValueError when ``init()`` got none."""
        if self._hparams is None:
            raise ValueError("there are no hyperparameters: pass them to init(hparams=...)")
        return self._hparams

    def get_hparam(self, name: str) -> Any:
        """One hyperparameter. Raises ValueError when there is none of that name."""
        hparams = self.get_hparams()
        if name not in hparams:
            raise ValueError(
                f"there is no hyperparameter {name!r}; there are {', '.join(map(repr, hparams)) or 'none'}"
            )
        if name == "global_batch_size":
            logger.warning("get_global_batch_size() and get_per_slot_batch_size() are what is trained with")
        return hparams[name]

    def get_experiment_config(self) -> Dict[str, Any]:
        """The experiment's configuration. Raises ValueError outside the cluster, unless ``init()`` got one."""
        if self._exp_conf is None:
            raise ValueError("there is no experiment configuration: pass it to init(exp_conf=...)")
        return self._exp_conf

    def get_global_batch_size(self) -> int:
        """Records of a batch over all slots: the hyperparameter ``global_batch_size``, rounded down to a multiple of the slots."""
        if self._global_batch_size is None:
            raise ValueError(NO_BATCH_SIZE)
        return self._global_batch_size

    def get_per_slot_batch_size(self) -> int:
        """Records of a batch on one slot."""
        if self._per_slot_batch_size is None:
            raise ValueError(NO_BATCH_SIZE)
        return self._per_slot_batch_size

    def get_data_config(self) -> Dict[str, Any]:
        """The configuration's ``data`` section."""
        section: Dict[str, Any] = self.get_experiment_config().get("data") or {}
        return section

    def get_experiment_id(self) -> int:
        """Raises RuntimeError outside the cluster, where there is none; so does ``get_trial_id``."""
        return self._id("_exp_id")

    def get_trial_id(self) -> int:
        return self._id("_trial_id")

    def _id(self, name: str) -> int:
        value = getattr(self._core.train, name, None)
        if value is None:
            raise RuntimeError("experiment and trial have ids on the cluster alone: see det.get_cluster_info()")
        return int(value)

    def get_trial_seed(self) -> int:
        """Raises NotTraining outside the cluster, where there is none."""
        if self._trial_seed is None:
            raise NotTraining("a trial has a seed on the cluster alone")
        return self._trial_seed

    def get_initial_batch(self) -> int:
        """How many batches were trained before this process started."""
        return self._steps_completed

    # --- the device -----------------------------------------------------------------------------------------------------

    def to_device(self, data: _Data) -> TorchData:
        """``data`` with its tensors and arrays on this worker's device. Batches of the data loaders are there already."""
        return to_device(data, self.device, self._to_device_warned_types)

    # --- where the training stands --------------------------------------------------------------------------------------

    def current_train_batch(self) -> int:
        """Index of the batch that is being trained, from the beginning of the training. Raises NotTraining before it."""
        if self._current_batch_idx is None:
            raise NotTraining("the training has not begun")
        return self._current_batch_idx

    def current_train_epoch(self) -> int:
        """Index of the epoch that is being trained."""
        return self.current_train_batch() // self._epoch()

    def is_epoch_start(self) -> bool:
        """Whether the batch that is being trained is the first of its epoch."""
        return self.current_train_batch() % self._epoch() == 0

    def is_epoch_end(self) -> bool:
        """Whether the batch that is being trained is the last of its epoch."""
        return (self.current_train_batch() + 1) % self._epoch() == 0

    def _epoch(self) -> int:
        if self._epoch_len is None:
            raise NotTraining("the training data loader has not been built")
        return self._epoch_len

    def get_stop_requested(self) -> bool:
        return self._stop_requested

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Ask for the training to stop: it saves a checkpoint and ends, alone after this batch, with several slots within
        a fraction of a second. One slot that asks is enough."""
        if not isinstance(stop_requested, bool):
            raise AssertionError("stop_requested is True or False")
        self._stop_requested = stop_requested

    # --- TensorBoard ----------------------------------------------------------------------------------------------------

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Whether reported metrics are written for TensorBoard as well."""
        if not isinstance(enable_tensorboard_logging, bool):
            raise AssertionError("enable_tensorboard_logging is True or False")
        self._enable_tensorboard_logging = enable_tensorboard_logging

    def get_enable_tensorboard_logging(self) -> bool:
        return self._enable_tensorboard_logging

    def get_tensorboard_path(self) -> pathlib.Path:
        """Where to write files for TensorBoard; they are copied to checkpoint storage."""
        return self._core.train.get_tensorboard_path()

    def get_tensorboard_writer(self) -> Any:
        """The ``torch.utils.tensorboard.SummaryWriter`` into which metrics are written. Raises ImportError without the
        package tensorboard."""
        if self._tbd_writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise ImportError(
                    f"files for TensorBoard need its package: pip install tensorboard ({error})"
                ) from error
            self._tbd_writer = SummaryWriter(self.get_tensorboard_path())
        return self._tbd_writer

    def set_profiler(self, *args: Any, **kwargs: Any) -> None:
        """Profile the training with ``torch.profiler.profile(*args, **kwargs)``: it is stepped after each batch, and its traces go
        to TensorBoard's files."""
        kwargs["on_trace_ready"] = torch.profiler.tensorboard_trace_handler(str(self.get_tensorboard_path()))
        self.profiler = torch.profiler.profile(*args, **kwargs)

    def _maybe_reset_tbd_writer(self) -> None:
        """Bring what was written to disk. A file is named by the second of its creation, so a new one is begun no sooner."""
        if self._tbd_writer is None:
            return
        now = time.time()
        if self._last_tb_reset_ts is not None and int(now) > int(self._last_tb_reset_ts):
            self._tbd_writer.close()
            self._last_tb_reset_ts = now
        else:
            self._last_tb_reset_ts = self._last_tb_reset_ts or now
            self._tbd_writer.flush()


def batch_sizes(hparams: Dict[str, Any], slots: int) -> Tuple[Optional[int], Optional[int]]:
    """(per slot, over all slots) from the hyperparameter ``global_batch_size``; (None, None) without it. Raises InvalidTrial."""
    batch_size = hparams.get("global_batch_size")
    if not batch_size:
        return None, None
    slots = max(slots, 1)
    if not isinstance(batch_size, int):
        raise InvalidTrial(f"the hyperparameter global_batch_size is a whole number, not {batch_size!r}")
    if batch_size < slots:
        raise InvalidTrial(
            f"the hyperparameter global_batch_size is {batch_size}: {slots} slots need at least one record each"
        )
    rounded = batch_size // slots * slots
    if rounded != batch_size:
        logger.warning("global_batch_size is %d instead of %d, to divide by %d slots", rounded, batch_size, slots)
    return batch_size // slots, rounded
