"""State in a checkpoint besides the models: progress of the training, random generators, the training code.

::

    state_dict.pth    models, optimizers, schedulers, scaler, callbacks, random generators of each slot (torch.save)
    trial_state.pkl   how far the training is
    load_data.json    how to build the trial again: its class, hyperparameters, configuration
    code/             the training code
    gradients-<rank>-of-<size>.pth   where batches wait for others before an optimizer steps
"""

from __future__ import annotations

import json
import logging
import pathlib
import pickle
import shutil
import sys
from typing import Any, Dict, List, Optional

import torch

from dethpc.core import DistributedContext
from dethpc.core._info import get_cluster_info
from dethpc.core._random import generators as generators
from dethpc.core._random import restore_generators as restore_generators
from dethpc.exec.setup import unpack
from dethpc.rundir.files import read_json

logger = logging.getLogger("dethpc.pytorch")

STATE_DICT, TRIAL_STATE, LOAD_DATA, CODE = "state_dict.pth", "trial_state.pkl", "load_data.json", "code"


class _TrialState:
    """How far the training is. ``trial_id`` tells a trial that goes on from one that only begins with another's weights."""

    def __init__(
        self,
        trial_id: int = 0,
        last_ckpt: int = 0,
        step_id: int = 0,
        last_val: int = 0,
        batches_trained: int = 0,
        epochs_trained: int = 0,
    ) -> None:
        self.trial_id = trial_id
        self.last_ckpt = last_ckpt
        self.step_id = step_id
        self.last_val = last_val
        self.batches_trained = batches_trained
        self.epochs_trained = epochs_trained

    def save(self, path: pathlib.Path) -> None:
        with (path / TRIAL_STATE).open("wb") as file:
            pickle.dump(vars(self), file)

    @classmethod
    def load(cls, path: pathlib.Path, trial_id: int) -> Optional[_TrialState]:
        """None when the checkpoint is another trial's, or says nothing."""
        if not (path / TRIAL_STATE).exists():
            return None
        with (path / TRIAL_STATE).open("rb") as file:
            fields = pickle.load(file)  # nosec B301  # the trial's own checkpoint
        if fields.get("trial_id") != trial_id:
            return None
        state = cls()
        vars(state).update({name: value for name, value in fields.items() if name in vars(state)})
        return state


def read_checkpoint(path: pathlib.Path, **options: Any) -> Dict[str, Any]:
    """The content of ``state_dict.pth``. It is pickled, with the states of callbacks and generators in it: load only your own."""
    arguments = {"map_location": "cpu", "weights_only": False, **options}
    checkpoint: Dict[str, Any] = torch.load(path / STATE_DICT, **arguments)  # nosec B614  # said above
    return checkpoint


# --- models ------------------------------------------------------------------------------------------------------------------


def model_state(model: torch.nn.Module) -> Dict[str, Any]:
    """Without the prefix that DistributedDataParallel adds: a checkpoint fits any number of slots."""
    inner = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
    state: Dict[str, Any] = inner.state_dict()
    return state


def load_model(model: torch.nn.Module, state: Dict[str, Any]) -> None:
    """Of one slot or several, with the prefix or without."""
    inner = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
    own = inner.state_dict().keys()
    if state and all(name.startswith("module.") for name in state) and not any(n.startswith("module.") for n in own):
        state = {name[len("module.") :]: value for name, value in state.items()}
    inner.load_state_dict(state)


def _gradients_file(distributed: DistributedContext) -> str:
    return f"gradients-{distributed.rank}-of-{distributed.size}.pth"


def save_gradients(path: pathlib.Path, distributed: DistributedContext, models: List[torch.nn.Module]) -> None:
    gradients = [[parameter.grad for parameter in model.parameters()] for model in models]
    torch.save(gradients, path / _gradients_file(distributed))


def load_gradients(path: pathlib.Path, distributed: DistributedContext, models: List[torch.nn.Module]) -> None:
    file = path / _gradients_file(distributed)
    if not file.exists():
        logger.warning("gradients of batches before the checkpoint are lost: the number of slots has changed")
        return
    for model, gradients in zip(models, torch.load(file, map_location="cpu", weights_only=True)):
        for parameter, gradient in zip(model.parameters(), gradients):
            parameter.grad = None if gradient is None else gradient.to(parameter.device)


# --- random generators -------------------------------------------------------------------------------------------------------


def generators_of(checkpoint: Dict[str, Any], rank: int, size: int) -> Optional[Dict[str, Any]]:
    """This worker's own when there are as many workers as there were, else the chief's."""
    states: List[Dict[str, Any]] = checkpoint.get("rng_states") or []
    state: Optional[Dict[str, Any]] = states[rank] if len(states) == size else checkpoint.get("rng_state")
    return state


# --- the training code -------------------------------------------------------------------------------------------------------


def save_origin(
    path: pathlib.Path,
    kind: str,
    trial_class: type,
    hparams: Optional[Dict[str, Any]],
    exp_conf: Optional[Dict[str, Any]],
    is_trainer: bool,
) -> None:
    """Write down how to build the trial again, and the code for it."""
    module, in_main = trial_class.__module__, False
    if module == "__main__":
        main = getattr(sys.modules["__main__"], "__file__", None)
        module, in_main = pathlib.Path(main).stem if main else "", True
    data: Dict[str, Any] = {
        "trial_type": kind,
        "experiment_config": exp_conf,
        "hparams": hparams,
        "trial_cls_spec": f"{module}:{trial_class.__qualname__}",
    }
    if is_trainer:
        data["is_trainer"] = True
    if in_main:
        data["trial_in_main"] = True
    (path / LOAD_DATA).write_text(json.dumps(data))
    _save_code(path / CODE)


def _save_code(target: pathlib.Path) -> None:
    target.mkdir(exist_ok=True)
    context = _context_archive()
    if context is not None:
        unpack.unpack(str(context), str(target))
        return
    # Outside the cluster the working directory may hold anything: only what was imported from it is code of this training.
    here = pathlib.Path.cwd()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        source = pathlib.Path(file) if isinstance(file, str) else None
        if source is None or source.suffix != ".py" or not source.is_file():
            continue
        try:
            relative = source.resolve().relative_to(here)
        except ValueError:
            continue
        if "site-packages" not in relative.parts:
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / relative)


def _context_archive() -> Optional[pathlib.Path]:
    """The experiment's context as it was sent, without what the training has written beside it."""
    info = get_cluster_info()
    if info is None or info._attempt_dir is None:
        return None
    spec = read_json(info._attempt_dir.parent.parent / "spec.json") or {}
    archive = pathlib.Path(spec.get("context") or "")
    return archive if archive.is_file() else None
