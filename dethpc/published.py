"""Modules of the published ``determined`` that have no counterpart, and what stands in their place."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Optional

_TRIALS = "it is inside of Determined's trial controllers"
_MODELS = "the model registry comes later"
_PLACES = "workspaces and projects come later"
_PACKING = "contexts are packed by det experiment create and determined.experimental.client.create_experiment()"
_STORAGES = "files are copied by determined.core; the managers are in determined.common.storage"
_TENSORBOARD = "event files are written and fetched by determined.core and det"

MODULES = {
    "determined.common.api.analytics": "nobody is told what users do",
    "determined.common.api.metric": "it is inside of the WebUI's tables",
    "determined.common.check": "it is inside of Determined's own checks",
    "determined.common.constants": _TRIALS,
    "determined.common.context": _PACKING,
    "determined.common.detignore": _PACKING,
    "determined.common.detlomond": "it is inside of Determined's proxies",
    "determined.common.experimental.model": _MODELS,
    "determined.common.experimental.oauth2_scim_client": "there is no OAuth here",
    "determined.common.experimental.project": _PLACES,
    "determined.common.experimental.resource_pool": _PLACES,
    "determined.common.experimental.workspace": _PLACES,
    "determined.common.storage.*": _STORAGES,
    "determined.common.streams*": "it is inside of the WebUI's feed",
    "determined.common.v1file_utils": _PACKING,
    "determined.constants": "it names paths in Determined's containers; determined.get_cluster_info() tells of a trial's place",
    "determined.deploy.aws*": "the cluster is Slurm: det deploy local and det deploy slurm-dev",
    "determined.deploy.gcp*": "the cluster is Slurm: det deploy local and det deploy slurm-dev",
    "determined.deploy.gke*": "the cluster is Slurm: det deploy local and det deploy slurm-dev",
    "determined.deploy.errors": "the cluster is Slurm: det deploy local and det deploy slurm-dev",
    "determined.deploy.healthcheck": "the cluster is Slurm: det deploy local and det deploy slurm-dev",
    "determined.deploy.local*": "the cluster is Slurm: det deploy local and det deploy slurm-dev",
    "determined.exec.*": "Determined starts it in its containers; here a job runs the entrypoint itself",
    "determined.gpu": "a trial's devices are in determined.get_cluster_info()",
    "determined.integrations*": "the callback of transformers is determined.transformers.DetCallback",
    "determined.ipc": "workers talk through determined.core.DistributedContext",
    "determined.keras.*": "it belongs to TFKerasTrial, which Determined deprecated: use determined.keras.DeterminedCallback",
    "determined.layers*": _TRIALS,
    "determined.load": _TRIALS,
    "determined.tensorboard.*": _TENSORBOARD,
    "determined.workload": _TRIALS,
}
"""By the module's name, as fnmatch reads it."""


def instead_of(module: str) -> Optional[str]:
    """What to say of a module that only the published package has; None of any other."""
    return next((words for pattern, words in MODULES.items() if fnmatchcase(module, pattern)), None)
