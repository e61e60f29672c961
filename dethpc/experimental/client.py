"""Module-level functions over one shared ``Determined``, for scripts.

::

    from determined.experimental import client

    exp = client.create_experiment("config.yaml", ".")
    print(exp.wait(), exp.top_checkpoint().download())
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Union

from dethpc.client.session import Session
from dethpc.experimental._determined import Determined
from dethpc.experimental._order import OrderBy
from dethpc.experimental.checkpoint import (
    Checkpoint,
    CheckpointOrderBy,
    CheckpointSortBy,
    CheckpointState,
    DownloadMode,
)
from dethpc.experimental.experiment import Experiment, ExperimentOrderBy, ExperimentSortBy, ExperimentState
from dethpc.experimental.metrics import TrainingMetrics, TrialMetrics, ValidationMetrics
from dethpc.experimental.model import Model, ModelOrderBy, ModelSortBy, ModelVersion
from dethpc.experimental.trial import Trial, TrialOrderBy, TrialSortBy, TrialState
from dethpc.experimental.user import User
from dethpc.experimental.workspace import Project, ResourcePool, Workspace

__all__ = [
    "Checkpoint",
    "CheckpointOrderBy",
    "CheckpointSortBy",
    "CheckpointState",
    "Determined",
    "DownloadMode",
    "Experiment",
    "ExperimentOrderBy",
    "ExperimentSortBy",
    "ExperimentState",
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
    "OrderBy",
    "Project",
    "ResourcePool",
    "TrainingMetrics",
    "Trial",
    "TrialMetrics",
    "TrialOrderBy",
    "TrialSortBy",
    "TrialState",
    "User",
    "ValidationMetrics",
    "Workspace",
    "create_experiment",
    "create_model",
    "create_user",
    "create_workspace",
    "delete_workspace",
    "get_checkpoint",
    "get_experiment",
    "get_model",
    "get_model_by_id",
    "get_model_labels",
    "get_models",
    "get_session_username",
    "get_trial",
    "get_user_by_id",
    "get_user_by_name",
    "get_workspace",
    "iter_trials_metrics",
    "list_experiments",
    "list_models",
    "list_users",
    "list_workspaces",
    "login",
    "logout",
    "stream_trials_metrics",
    "stream_trials_training_metrics",
    "stream_trials_validation_metrics",
    "whoami",
]

_determined: Optional[Determined] = None


def _the() -> Determined:
    global _determined
    if _determined is None:
        _determined = Determined()
    return _determined


def login(
    master: Optional[str] = None,
    user: Optional[str] = None,
    password: Optional[str] = None,
    cert_path: Optional[str] = None,
    cert_name: Optional[str] = None,
    noverify: bool = False,
) -> None:
    """Choose the master and the user; see ``Determined``. Seldom needed: the first call of another function does it with what
    ``det`` uses. Raises ValueError after such a call."""
    global _determined
    if _determined is not None:
        raise ValueError("login() comes before all other calls; for several masters use Determined objects")
    _determined = Determined(master, user, password, cert_path, cert_name, noverify)


def logout() -> None:
    """End the session of ``login()``. Does nothing without one."""
    global _determined
    if _determined is not None:
        _determined.logout()
        _determined = None


def create_experiment(
    config: Union[str, Path, Dict[str, Any]],
    model_dir: Optional[str] = None,
    includes: Optional[Iterable[Union[str, Path]]] = None,
    project_id: Optional[int] = None,
    template: Optional[str] = None,
) -> Experiment:
    """Create an experiment from a configuration (the path of a YAML file, or a dict) and a context directory."""
    return _the().create_experiment(config, model_dir, includes, project_id, template)


def get_experiment(experiment_id: int) -> Experiment:
    """Raises NotFound."""
    return _the().get_experiment(experiment_id)


def list_experiments(
    sort_by: Optional[ExperimentSortBy] = None,
    order_by: Optional[OrderBy] = None,
    experiment_ids: Optional[List[int]] = None,
    labels: Optional[List[str]] = None,
    users: Optional[List[str]] = None,
    states: Optional[List[ExperimentState]] = None,
    name: Optional[str] = None,
    project_id: Optional[int] = None,
) -> List[Experiment]:
    """Experiments for which everything holds that is given."""
    return _the().list_experiments(sort_by, order_by, experiment_ids, labels, users, states, name, project_id)


def get_trial(trial_id: int) -> Trial:
    """Raises NotFound."""
    return _the().get_trial(trial_id)


def get_checkpoint(uuid: str) -> Checkpoint:
    """Raises NotFound."""
    return _the().get_checkpoint(uuid)


def iter_trials_metrics(trial_ids: List[int], group: str) -> Iterator[TrialMetrics]:
    """Reports of the trials, in order; group "": of every group."""
    return _the().iter_trials_metrics(trial_ids, group)


def stream_trials_metrics(trial_ids: List[int], group: str) -> Iterator[TrialMetrics]:
    """An older name of ``iter_trials_metrics``."""
    return iter_trials_metrics(trial_ids, group)


def stream_trials_training_metrics(trial_ids: List[int]) -> Iterator[TrialMetrics]:
    return iter_trials_metrics(trial_ids, "training")


def stream_trials_validation_metrics(trial_ids: List[int]) -> Iterator[TrialMetrics]:
    return iter_trials_metrics(trial_ids, "validation")


def create_model(name: str, description: Optional[str] = "", metadata: Optional[Dict[str, Any]] = None) -> Model:
    """Raises Refused."""
    return _the().create_model(name, description, metadata)


def get_model(identifier: Union[str, int]) -> Model:
    """By its name or its id. Raises NotFound."""
    return _the().get_model(identifier)


def get_model_by_id(model_id: int) -> Model:
    """An older name of ``get_model``. Raises NotFound."""
    return _the().get_model(model_id)


def get_models(
    sort_by: ModelSortBy = ModelSortBy.NAME,
    order_by: OrderBy = OrderBy.ASCENDING,
    name: str = "",
    description: str = "",
) -> List[Model]:
    """An older name of ``list_models``."""
    return _the().list_models(sort_by, order_by, name, description)


def list_models(
    sort_by: ModelSortBy = ModelSortBy.NAME,
    order_by: OrderBy = OrderBy.ASCENDING,
    name: Optional[str] = None,
    description: Optional[str] = None,
    model_id: Optional[int] = None,
    workspace_names: Optional[List[str]] = None,
    workspace_ids: Optional[List[int]] = None,
) -> List[Model]:
    """Models for which everything holds that is given."""
    return _the().list_models(sort_by, order_by, name, description, model_id, workspace_names, workspace_ids)


def get_model_labels() -> List[str]:
    """Labels in use on models, the most popular first."""
    return _the().get_model_labels()


def get_workspace(name: str) -> Workspace:
    """Raises NotFound."""
    return _the().get_workspace(name)


def list_workspaces() -> List[Workspace]:
    return _the().list_workspaces()


def create_workspace(name: str) -> Workspace:
    """Raises Refused."""
    return _the().create_workspace(name)


def delete_workspace(name: str) -> None:
    """Raises NotFound; Refused while it has projects."""
    _the().delete_workspace(name)


def whoami() -> User:
    return _the().whoami()


def get_session_username() -> str:
    return _the().get_session_username()


def create_user(username: str, admin: bool, password: Optional[str] = None, remote: bool = False) -> User:
    return _the().create_user(username, admin, password, remote)


def get_user_by_id(user_id: int) -> User:
    """Raises NotFound."""
    return _the().get_user_by_id(user_id)


def get_user_by_name(user_name: str) -> User:
    """Raises NotFound."""
    return _the().get_user_by_name(user_name)


def list_users(active: Optional[bool] = None) -> List[User]:
    return _the().list_users(active)


def _get_singleton_session() -> Session:
    return _the()._session
