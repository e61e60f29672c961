"""``python3 -m dethpc.exec.harness module:Class``: trains a trial class by the experiment's configuration.

Each worker runs it, for the launchers' ``--trial`` and for entrypoints of the form ``module:Class``.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Sequence

from dethpc.core._info import get_cluster_info
from dethpc.domain.entrypoint import by_module, is_trial_class


def main(arguments: Sequence[str]) -> int:
    """1 when the class cannot be found, or this is no task of the cluster."""
    info = get_cluster_info()
    if len(arguments) != 1 or info is None or info.task_type != "TRIAL":
        sys.stderr.write(
            "harness: a trial class must be the entrypoint of an experiment: module:Class, or LAUNCHER --trial module:Class\n"
        )
        return 1
    try:
        trial_class = load(arguments[0])
    except ValueError as error:
        sys.stderr.write(f"harness: {error}\n")
        return 1
    trial_class._train_on_cluster(legacy=str(info.trial._settings.entrypoint).strip() == arguments[0])
    return 0


def load(spec: str) -> Any:
    """The trial class of ``module:Class`` or ``path/to/file.py:Class``, as seen from the working directory. Raises ValueError; what
    the module itself raises passes through."""
    if not is_trial_class(by_module(spec)):
        raise ValueError(
            f"{spec!r} is not of the form module:Class, such as model_def:MyTrial, or path/to/file.py:Class"
        )
    module, _, name = by_module(spec).partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        target: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise ValueError(f"there is no module {module!r} in the context directory") from None
    for part in name.split("."):
        if not hasattr(target, part):
            raise ValueError(f"{module} has no {name!r}")
        target = getattr(target, part)
    if not hasattr(target, "_train_on_cluster"):
        raise ValueError(f"{spec} is not a trial class: it is not a subclass of PyTorchTrial or DeepSpeedTrial")
    return target


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
