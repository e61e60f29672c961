"""Paths of TensorBoard files, on this node and in checkpoint storage."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Dict

from dethpc.core._info import get_cluster_info
from dethpc.core._tensorboard import local_folder


def get_base_path(checkpoint_config: Dict[str, Any]) -> pathlib.Path:
    """Where this worker writes: its folder on the node, which is copied to checkpoint storage, or off the cluster a new one
    that goes with the process; below ``checkpoint_config["base_path"]`` where there is one."""
    rank = int(os.environ.get("RANK") or os.environ.get("HOROVOD_RANK") or 0)
    if checkpoint_config.get("base_path"):
        return pathlib.Path(checkpoint_config["base_path"], f"tensorboard-{rank}")
    info = get_cluster_info()
    return local_folder(info._folder("scratch") if info is not None else None, rank)


def get_experiment_sync_path(cluster_id: str, experiment_id: str) -> pathlib.Path:
    """Where an experiment's files are, beside the checkpoints."""
    return pathlib.Path(cluster_id, "tensorboard", "experiment", experiment_id)


def get_sync_path(cluster_id: str, experiment_id: str, trial_id: str) -> pathlib.Path:
    """Where a trial's files are, beside the checkpoints."""
    return get_experiment_sync_path(cluster_id, experiment_id) / "trial" / trial_id
