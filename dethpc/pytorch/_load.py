"""A trained trial from its checkpoint, for use outside of training."""

from __future__ import annotations

import importlib
import json
import logging
import pathlib
from typing import Any, Dict, Optional, Type

import torch

from dethpc import core
from dethpc.domain.trial_config import TrialConfig
from dethpc.pytorch._context import PyTorchTrialContext
from dethpc.pytorch._training import state as _state
from dethpc.pytorch._trial import PyTorchTrial
from dethpc.rundir.files import read_json
from dethpc.util import import_from_path

logger = logging.getLogger("dethpc.pytorch")


class CheckpointLoadContext(PyTorchTrialContext):
    """A context to build a trial with outside of training: it wraps nothing, and reports to nobody. ::

    trial = MyTrial(pytorch.CheckpointLoadContext(hparams={"lr": 0.1}))
    """

    def __init__(self, hparams: Optional[Dict[str, Any]] = None, exp_conf: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(
            core_context=core._dummy_init(),
            trial_seed=0,
            hparams=hparams,
            slots_per_trial=1,
            num_gpus=torch.cuda.device_count(),
            exp_conf=exp_conf,
            aggregation_frequency=1,
            steps_completed=0,
            managed_training=False,
            debug_enabled=False,
        )


def load_trial_from_checkpoint_path(
    path: str,
    trial_class: Optional[Type[PyTorchTrial]] = None,
    trial_kwargs: Optional[Dict[str, Any]] = None,
    torch_load_kwargs: Optional[Dict[str, Any]] = None,
    **kwargs: Any,
) -> PyTorchTrial:
    """The trial of the checkpoint in the directory ``path``, with its models as they were saved.

    ``trial_class``: else the one that was trained, from the code in the checkpoint. ``trial_kwargs``: for its constructor,
    after the context. ``torch_load_kwargs``: for ``torch.load``; ``kwargs`` is the deprecated form of it.

    Checkpoints of Determined since 0.13 are loaded; those until 0.17.6 as ``Checkpoint.download()`` left them. Raises ValueError
    when the class cannot be imported, AssertionError when ``path`` holds no checkpoint of a PyTorchTrial.
    """
    if kwargs and torch_load_kwargs:
        raise ValueError("give torch_load_kwargs or, as it was once, keyword arguments; not both")
    directory = pathlib.Path(path)
    origin = _origin(directory)
    if trial_class is None:
        trial_class = _import(directory / _state.CODE, origin)
    context = CheckpointLoadContext(origin.get("hparams"), origin.get("experiment_config"))
    trial = trial_class(context, **(trial_kwargs or {}))
    checkpoint = _state.read_checkpoint(directory, **(torch_load_kwargs or kwargs))
    for model, state in zip(context.models, checkpoint["models_state_dict"]):
        _state.load_model(model, state)
    return trial


def _origin(directory: pathlib.Path) -> Dict[str, Any]:
    try:
        origin: Dict[str, Any] = json.loads((directory / _state.LOAD_DATA).read_text())
    except FileNotFoundError:
        return _origin_before_0_17_7(directory)
    if origin.get("trial_type") != "PyTorchTrial":
        logger.warning("%s is a checkpoint of a %s", directory, origin.get("trial_type"))
    return origin


def _origin_before_0_17_7(directory: pathlib.Path) -> Dict[str, Any]:
    """Determined's releases until 0.17.6 left it to the master: it is in the file that a download writes."""
    metadata = read_json(directory / "metadata.json") or {}
    config = metadata.get("experiment_config")
    entrypoint = TrialConfig.from_json(config).entrypoint if isinstance(config, dict) else ""
    if not entrypoint:
        raise AssertionError(
            f"{directory} has no {_state.LOAD_DATA}, and no metadata.json that names an entrypoint: it is no checkpoint of a "
            "trial class, or one of a release before 0.17.7 that was not copied by Checkpoint.download()"
        )
    hparams = metadata.get("hparams") or {}
    return {
        "experiment_config": config,
        "hparams": hparams,
        "trial_cls_spec": entrypoint,
        "trial_type": "PyTorchTrial",
    }


def _import(code: pathlib.Path, origin: Dict[str, Any]) -> Type[PyTorchTrial]:
    module, _, name = str(origin["trial_cls_spec"]).partition(":")
    try:
        with import_from_path(code):
            trial_class: Any = importlib.import_module(module)
    except Exception as error:
        raise ValueError(f"{module} cannot be imported from {code} ({error}): pass trial_class") from error
    for part in name.split("."):
        trial_class = getattr(trial_class, part, None)
    if not isinstance(trial_class, type):
        raise ValueError(f"{code} has no class {module}:{name}: pass trial_class")
    return trial_class
