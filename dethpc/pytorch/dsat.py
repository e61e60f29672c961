"""What is left of DeepSpeed Autotune, which Determined gave up: what training code calls, and words for who starts a search."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from typing import Any, Dict, Iterator, List, Optional

from dethpc import core
from dethpc.pytorch.deepspeed import get_ds_config_from_hparams, overwrite_deepspeed_config
from dethpc.pytorch.deepspeed._config import OVERWRITES

__all__ = ["dsat_reporting_context", "get_ds_config_from_hparams", "get_hf_args_with_overwrites"]

_GIVEN_UP = (
    "dsat: DeepSpeed Autotune is not supported (Determined gave it up, too): search over the hyperparameter "
    "overwrite_deepspeed_args by an experiment of your own, such as adaptive_asha over its "
    "train_micro_batch_size_per_gpu and zero_optimization.stage (docs/training.md)"
)


@contextlib.contextmanager
def dsat_reporting_context(
    core_context: core.Context, op: core.SearcherOperation, steps_completed: Optional[int] = None
) -> Iterator[None]:
    """Around training steps, where autotuning measured them: runs them, and no more."""
    yield


def get_hf_args_with_overwrites(args: List[str], hparams: Dict[str, Any]) -> List[str]:
    """The command line of a script of transformers with the hyperparameter ``overwrite_deepspeed_args`` put into the file after
    ``--deepspeed``: a copy of it is named instead. Batch sizes that both name are the configuration's.

    Raises ValueError when there are overwrites and no ``--deepspeed FILE``.
    """
    over = hparams.get(OVERWRITES)
    if not over:
        return list(args)
    if "--deepspeed" not in args[:-1]:
        raise ValueError(f"the hyperparameter {OVERWRITES} needs --deepspeed FILE among the arguments of the script")
    arguments = list(args)
    at = arguments.index("--deepspeed") + 1
    config = overwrite_deepspeed_config(arguments[at], over)
    with tempfile.NamedTemporaryFile("w", prefix="ds_config_", suffix=".json", delete=False) as file:
        json.dump(config, file)
    arguments[at] = file.name
    for option, name in _SIZES.items():
        if option in arguments[:-1] and isinstance(config.get(name), int):
            arguments[arguments.index(option) + 1] = str(config[name])
    return arguments


_SIZES = {
    "--per_device_train_batch_size": "train_micro_batch_size_per_gpu",
    "--gradient_accumulation_steps": "gradient_accumulation_steps",
}

if __name__ == "__main__":
    sys.exit(_GIVEN_UP)
