"""``Determined``: the client of one master, and its experiments, trials, checkpoints and users."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Union

from dethpc.client import address
from dethpc.client.login import login, token_at
from dethpc.client.nouns import experiments, models, trials, workspaces
from dethpc.client.session import Session
from dethpc.errors import ContextError, MasterUnreachable, Unauthorized
from dethpc.experimental._order import OrderBy
from dethpc.experimental.checkpoint import Checkpoint
from dethpc.experimental.experiment import Experiment, ExperimentSortBy, ExperimentState
from dethpc.experimental.metrics import TrialMetrics, iter_metrics
from dethpc.experimental.model import Model, ModelSortBy
from dethpc.experimental.trial import Trial
from dethpc.experimental.user import User
from dethpc.experimental.workspace import Workspace

logger = logging.getLogger("dethpc.client")


class Determined:
    """One master, as one user.

    Without arguments: the master that ``DET_MASTER`` names, or your own, with the token that ``det`` uses: that of ``DET_USER``
    where it is set. With ``user`` and ``password`` it logs in, with ``user`` alone it takes that user's login. ``cert_path``: a
    file of certificates to trust; ``cert_name``: the name that the master's is for, where that is not its host; ``noverify``:
    trust any. That of your own master is known from its home.
    Raises MasterUnreachable, Unauthorized.
    """

    def __init__(
        self,
        master: Optional[str] = None,
        user: Optional[str] = None,
        password: Optional[str] = None,
        cert_path: Optional[str] = None,
        cert_name: Optional[str] = None,
        noverify: bool = False,
    ) -> None:
        url = address.canonical(master) if master else address.master_url()
        if not url:
            raise MasterUnreachable("no master is known: set DET_MASTER, or start one with `det master up`")
        # The own master may move to another port or login node while a script waits: its home says where it is.
        own = None if master or os.environ.get("DET_MASTER") or cert_path or noverify else address.own_finder()
        self._master = url
        cert = "noverify" if noverify else cert_path
        if password is None:
            token = token_at(url, user, (cert, cert_name))
        else:
            token = login(
                url, user or os.environ.get("DET_USER") or "determined", password, cert=cert, cert_name=cert_name
            )
        if token is None:
            raise Unauthorized(
                f"not logged in at {url}: give user and password, or set DET_USER_TOKEN to what `det token create` prints",
                401,
            )
        self._session = Session(own or url, token, trust=(cert, cert_name))

    @classmethod
    def _from_session(cls, session: Session) -> Determined:
        client = cls.__new__(cls)
        client._session, client._master = session, session.url
        return client

    # --- experiments, trials, checkpoints -------------------------------------------------------------------------------

    def create_experiment(
        self,
        config: Union[str, Path, Dict[str, Any]],
        model_dir: Optional[Union[str, Path]] = None,
        includes: Optional[Iterable[Union[str, Path]]] = None,
        project_id: Optional[int] = None,
        template: Optional[str] = None,
    ) -> Experiment:
        """Create an experiment from a configuration (the path of a YAML file, or a dict) and a context directory. ``template``: the
        name of the one that the configuration is laid over.

        Raises ConfigError with every mistake, ContextError.
        """
        text = json.dumps(config) if isinstance(config, dict) else Path(config).read_text()
        try:
            from dethpc.context.collect import (
                collect,  # needs pathspec, which training code on a compute node does without
            )
        except ImportError as error:
            raise ContextError(
                f"this Python cannot pack a context directory ({error}); create experiments where dethpc is installed"
            ) from error
        context = collect(None if model_dir is None else Path(model_dir), [Path(path) for path in includes or ()])
        for home in context.homes:
            logger.warning("not sent: %s, a home of dethpc's, which holds the key to its master", home)
        files = context.model_definition()
        answer = experiments.create(self._session, text, files, project=project_id, template=template)
        for warning in answer.get("warnings") or []:
            logger.warning("experiment %s: %s", answer["experiment"]["id"], warning)
        return Experiment._from_wire(self._session, answer["experiment"])

    def get_experiment(self, experiment_id: int) -> Experiment:
        """Raises NotFound."""
        return Experiment._from_wire(self._session, experiments.get(self._session, experiment_id)["experiment"])

    def list_experiments(
        self,
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
        params: Dict[str, Any] = {
            "limit": -1,
            "sortBy": None if sort_by is None else sort_by.value,
            "orderBy": None if order_by is None else order_by.value,
            "experimentIdFilter.incl": experiment_ids or None,
            "labels": labels or None,
            "users": users or None,
            "states": [state.value for state in states] if states else None,
            "name": name,
            "projectId": project_id,
        }
        rows = self._session.get("/api/v1/experiments", params).get("experiments") or []
        return [Experiment._from_wire(self._session, wire) for wire in rows]

    def get_trial(self, trial_id: int) -> Trial:
        """Raises NotFound."""
        return Trial._from_wire(self._session, trials.get(self._session, trial_id))

    def get_checkpoint(self, uuid: str) -> Checkpoint:
        """Raises NotFound."""
        checkpoint = Checkpoint(self._session, uuid)
        checkpoint.reload()
        return checkpoint

    def iter_trials_metrics(self, trial_ids: List[int], group: str) -> Iterator[TrialMetrics]:
        """Reports of the trials, in order; group "": of every group."""
        return iter_metrics(self._session, trial_ids, group)

    def stream_trials_metrics(self, trial_ids: List[int], group: str) -> Iterator[TrialMetrics]:
        """An older name of ``iter_trials_metrics``."""
        return self.iter_trials_metrics(trial_ids, group)

    def stream_trials_training_metrics(self, trial_ids: List[int]) -> Iterator[TrialMetrics]:
        return self.iter_trials_metrics(trial_ids, "training")

    def stream_trials_validation_metrics(self, trial_ids: List[int]) -> Iterator[TrialMetrics]:
        return self.iter_trials_metrics(trial_ids, "validation")

    # --- models ---------------------------------------------------------------------------------------------------------

    def create_model(
        self,
        name: str,
        description: Optional[str] = "",
        metadata: Optional[Dict[str, Any]] = None,
        labels: Optional[List[str]] = None,
        workspace_name: Optional[str] = None,
    ) -> Model:
        """Raises Refused, NotFound."""
        fields = {"description": description, "metadata": metadata or {}, "labels": labels or []}
        if workspace_name is not None:
            fields["workspaceName"] = workspace_name
        return Model._from_wire(self._session, models.create(self._session, name, **fields))

    def get_model(self, identifier: Union[str, int]) -> Model:
        """By its name or its id. Raises NotFound."""
        return Model._from_wire(self._session, models.model(self._session, identifier))

    def get_model_by_id(self, model_id: int) -> Model:
        """An older name of ``get_model``. Raises NotFound."""
        return self.get_model(model_id)

    def list_models(
        self,
        sort_by: ModelSortBy = ModelSortBy.NAME,
        order_by: OrderBy = OrderBy.ASCENDING,
        name: Optional[str] = None,
        description: Optional[str] = None,
        model_id: Optional[int] = None,
        workspace_names: Optional[List[str]] = None,
        workspace_ids: Optional[List[int]] = None,
    ) -> List[Model]:
        """Models for which everything holds that is given."""
        params = {
            "sortBy": sort_by.value,
            "orderBy": order_by.value,
            "name": name,
            "description": description,
            "id": model_id,
            "workspaceNames": workspace_names,
            "workspaceIds": workspace_ids,
        }
        rows = models.models(self._session, **{key: value for key, value in params.items() if value})
        return [Model._from_wire(self._session, wire) for wire in rows]

    get_models = list_models  # an older name

    def get_model_labels(self) -> List[str]:
        """Labels in use on models, the most popular first."""
        return models.labels(self._session)

    # --- workspaces -----------------------------------------------------------------------------------------------------

    def get_workspace(self, name: str) -> Workspace:
        """Raises NotFound."""
        return Workspace._from_wire(self._session, workspaces.workspace(self._session, name))

    def list_workspaces(self) -> List[Workspace]:
        return [Workspace._from_wire(self._session, wire) for wire in workspaces.workspaces(self._session)]

    def create_workspace(self, name: str) -> Workspace:
        """Raises Refused."""
        return Workspace._from_wire(self._session, workspaces.create_workspace(self._session, name))

    def delete_workspace(self, name: str) -> None:
        """Raises NotFound; Refused while it has projects."""
        workspaces.delete_workspace(self._session, self.get_workspace(name).id)

    # --- users ----------------------------------------------------------------------------------------------------------

    def whoami(self) -> User:
        return User._from_wire(self._session, self._session.get("/api/v1/me")["user"])

    def get_session_username(self) -> str:
        return str(self.whoami().username)

    def create_user(self, username: str, admin: bool, password: Optional[str] = None, remote: bool = False) -> User:
        """One who is no admin may look. Without a password the user logs in by access tokens alone, as with ``remote``: there is no
        identity provider. Raises AlreadyExists, Refused."""
        from dethpc.client.nouns import users

        wire = users.create(self._session, username, "" if remote else password or "", admin=admin)
        return User._from_wire(self._session, wire)

    def get_user_by_id(self, user_id: int) -> User:
        """Raises NotFound."""
        return User._from_wire(self._session, self._session.get(f"/api/v1/users/{user_id}")["user"])

    def get_user_by_name(self, user_name: str) -> User:
        """Raises NotFound."""
        return User._from_wire(self._session, self._session.get(f"/api/v1/users/{user_name}/by-username")["user"])

    def list_users(self, active: Optional[bool] = None) -> List[User]:
        users = [User._from_wire(self._session, wire) for wire in self._session.get("/api/v1/users")["users"]]
        return [user for user in users if active is None or user.active is active]

    def logout(self) -> None:
        """End the session, if it has not ended already. The owner's own token stays good."""
        with contextlib.suppress(Unauthorized):
            self._session.post("/api/v1/auth/logout", {})
