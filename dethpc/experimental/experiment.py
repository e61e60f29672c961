"""Experiments, as scripts work with them."""

from __future__ import annotations

import enum
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Union

from dethpc.client.nouns import experiments, workspaces
from dethpc.client.session import Session, patiently
from dethpc.experimental import checkpoint, trial
from dethpc.experimental._order import OrderBy


class ExperimentState(enum.Enum):
    ACTIVE = "STATE_ACTIVE"
    PAUSED = "STATE_PAUSED"
    STOPPING_COMPLETED = "STATE_STOPPING_COMPLETED"
    STOPPING_CANCELED = "STATE_STOPPING_CANCELED"
    STOPPING_ERROR = "STATE_STOPPING_ERROR"
    COMPLETED = "STATE_COMPLETED"
    CANCELED = "STATE_CANCELED"
    ERROR = "STATE_ERROR"
    DELETED = "STATE_DELETED"
    DELETING = "STATE_DELETING"
    DELETE_FAILED = "STATE_DELETE_FAILED"
    STOPPING_KILLED = "STATE_STOPPING_KILLED"
    QUEUED = "STATE_QUEUED"
    PULLING = "STATE_PULLING"
    STARTING = "STATE_STARTING"
    RUNNING = "STATE_RUNNING"


TERMINAL_STATES = {
    ExperimentState.COMPLETED,
    ExperimentState.CANCELED,
    ExperimentState.DELETED,
    ExperimentState.DELETE_FAILED,
    ExperimentState.ERROR,
}


class ExperimentSortBy(enum.Enum):
    """Fields that experiments can be sorted by."""

    ID = "SORT_BY_ID"
    DESCRIPTION = "SORT_BY_DESCRIPTION"
    START_TIME = "SORT_BY_START_TIME"
    END_TIME = "SORT_BY_END_TIME"
    STATE = "SORT_BY_STATE"
    NUM_TRIALS = "SORT_BY_NUM_TRIALS"
    PROGRESS = "SORT_BY_PROGRESS"
    USER = "SORT_BY_USER"
    NAME = "SORT_BY_NAME"
    FORKED_FROM = "SORT_BY_FORKED_FROM"
    RESOURCE_POOL = "SORT_BY_RESOURCE_POOL"
    PROJECT_ID = "SORT_BY_PROJECT_ID"
    CHECKPOINT_SIZE = "SORT_BY_CHECKPOINT_SIZE"
    CHECKPOINT_COUNT = "SORT_BY_CHECKPOINT_COUNT"
    SEARCHER_METRIC_VAL = "SORT_BY_SEARCHER_METRIC_VAL"


class ExperimentOrderBy(enum.Enum):
    """An older name of ``OrderBy``."""

    ASCENDING = "ORDER_BY_ASC"
    DESCENDING = "ORDER_BY_DESC"


class Experiment:
    """An experiment. Its attributes are as of when it was fetched; ``reload`` fetches it again."""

    def __init__(self, experiment_id: int, session: Session) -> None:
        self._id = experiment_id
        self._session = session
        self.config: Optional[Dict[str, Any]] = None
        self.state: Optional[ExperimentState] = None
        self.labels: Optional[Set[str]] = None
        self.archived: Optional[bool] = None
        self.name: Optional[str] = None
        self.progress: Optional[float] = None
        self.description: Optional[str] = None
        self.notes: Optional[str] = None
        self.project_id: Optional[int] = None
        self.workspace_id: Optional[int] = None

    @property
    def id(self) -> int:
        return self._id

    @classmethod
    def _from_wire(cls, session: Session, wire: Dict[str, Any]) -> Experiment:
        experiment = cls(wire["id"], session)
        experiment._take(wire)
        return experiment

    def _take(self, wire: Dict[str, Any]) -> None:
        self.config = wire.get("config")
        self.state = ExperimentState(wire["state"])
        self.labels = set(wire.get("labels") or [])
        self.archived = wire.get("archived")
        self.name = wire.get("name")
        self.progress = wire.get("progress")
        self.description = wire.get("description")
        self.notes = wire.get("notes")
        self.project_id = wire.get("projectId")
        self.workspace_id = wire.get("workspaceId")

    def reload(self) -> None:
        self._take(experiments.get(self._session, self.id)["experiment"])

    # --- changing it ----------------------------------------------------------------------------------------------------

    def set_name(self, name: str) -> None:
        self._patch(name=name)

    def set_description(self, description: str) -> None:
        self._patch(description=description)

    def set_notes(self, notes: str) -> None:
        self._patch(notes=notes)

    def set_labels(self, labels: Set[str]) -> None:
        self._patch(labels=sorted(labels))

    def _patch(self, **fields: Any) -> None:
        self._take(experiments.patch(self._session, self.id, **fields)["experiment"])

    def add_label(self, label: str) -> None:
        self._label("PUT", label)

    def remove_label(self, label: str) -> None:
        self._label("DELETE", label)

    def _label(self, method: str, label: str) -> None:
        from urllib.parse import quote

        path = f"/api/v1/experiments/{self.id}/labels/{quote(label, safe='')}"
        self.labels = set(self._session.request(method, path)["labels"])

    def activate(self) -> None:
        experiments.act(self._session, self.id, "activate")

    def pause(self) -> None:
        """Its trials checkpoint and give their slots back."""
        experiments.act(self._session, self.id, "pause")

    def cancel(self) -> None:
        """End it; its trials checkpoint first."""
        experiments.act(self._session, self.id, "cancel")

    def kill(self) -> None:
        """End it now."""
        experiments.act(self._session, self.id, "kill")

    def archive(self) -> None:
        experiments.act(self._session, self.id, "archive")
        self.archived = True

    def move_to_project(self, workspace_name: str, project_name: str) -> None:
        """Raises NotFound, Refused."""
        project = workspaces.project(self._session, workspace_name, project_name)
        workspaces.move_experiment(self._session, self.id, project["id"])
        self.project_id, self.workspace_id = project["id"], project["workspaceId"]

    def unarchive(self) -> None:
        experiments.act(self._session, self.id, "unarchive")
        self.archived = False

    def delete(self) -> None:
        experiments.delete(self._session, self.id)

    # --- looking at it --------------------------------------------------------------------------------------------------

    def download_code(self, output_dir: Optional[str] = None) -> str:
        """Save the context directory as ``exp-<id>_model_def.tar.gz`` in ``output_dir`` (default: here); returns its path."""
        folder = Path(output_dir or ".").expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"exp-{self.id}_model_def.tar.gz"
        path.write_bytes(experiments.model_definition(self._session, self.id))
        return str(path)

    def list_trials(
        self, sort_by: trial.TrialSortBy = trial.TrialSortBy.ID, order_by: OrderBy = OrderBy.ASCENDING
    ) -> List[trial.Trial]:
        return list(self.iter_trials(sort_by, order_by))

    def get_trials(
        self, sort_by: trial.TrialSortBy = trial.TrialSortBy.ID, order_by: OrderBy = OrderBy.ASCENDING
    ) -> List[trial.Trial]:
        """An older name of ``list_trials``."""
        return self.list_trials(sort_by, order_by)

    def iter_trials(
        self,
        sort_by: trial.TrialSortBy = trial.TrialSortBy.ID,
        order_by: OrderBy = OrderBy.ASCENDING,
        limit: Optional[int] = None,
    ) -> Iterator[trial.Trial]:
        """The trials, fetched as they are asked for. ``limit`` is how many are fetched at once; the pages have their own size."""
        descending = order_by.value == OrderBy.DESC.value
        for wire in experiments.trials(self._session, self.id, sort_by=sort_by.value, descending=descending):
            yield trial.Trial._from_wire(self._session, wire)

    def await_first_trial(self, interval: float = 0.1) -> trial.Trial:
        """Wait for the first trial, looking every ``interval`` seconds.

        Bears with a master that restarts or moves for a minute. Raises RuntimeError when the experiment ends before.
        """

        def first() -> Sequence[Any]:
            self.reload()
            return list(experiments.trials(self._session, self.id, sort_by="SORT_BY_START_TIME", limit=1))

        while True:
            for wire in patiently(first):
                return trial.Trial._from_wire(self._session, wire)
            if self.state in TERMINAL_STATES:
                raise RuntimeError(f"experiment {self.id} is {self.state and self.state.name} and had no trial")
            time.sleep(interval)

    def wait(self, interval: float = 5.0) -> ExperimentState:
        """Wait for the end, looking every ``interval`` seconds; returns the state.

        Bears with a master that restarts or moves for a minute. Raises ValueError when it is paused.
        """
        while True:
            patiently(self.reload)
            assert self.state is not None
            if self.state in TERMINAL_STATES:
                return self.state
            if self.state is ExperimentState.PAUSED:
                raise ValueError(f"experiment {self.id} is paused: activate it, or it will never end")
            time.sleep(interval)

    def list_checkpoints(
        self,
        sort_by: Optional[Union[str, checkpoint.CheckpointSortBy]] = None,
        order_by: Optional[OrderBy] = None,
        max_results: Optional[int] = None,
    ) -> List[checkpoint.Checkpoint]:
        """Completed checkpoints, sorted by a field or a validation metric's name; by default the best come first."""
        path = f"/api/v1/experiments/{self.id}/checkpoints"
        return checkpoint.of_page(self._session, path, sort_by, order_by, max_results)

    def top_checkpoint(
        self, sort_by: Optional[str] = None, smaller_is_better: Optional[bool] = None
    ) -> checkpoint.Checkpoint:
        """The best checkpoint by the searcher's metric, or by another one. Raises AssertionError when there is none."""
        checkpoints = self.top_n_checkpoints(1, sort_by, smaller_is_better)
        return checkpoints[0]

    def top_n_checkpoints(
        self, limit: int, sort_by: Optional[str] = None, smaller_is_better: Optional[bool] = None
    ) -> List[checkpoint.Checkpoint]:
        """The best checkpoint of each of the ``limit`` best trials. Raises AssertionError when there is no checkpoint."""
        order = None if sort_by is None else OrderBy.ASC if smaller_is_better else OrderBy.DESC
        best: Dict[int, checkpoint.Checkpoint] = {}
        for candidate in self.list_checkpoints(sort_by, order):
            assert candidate.training is not None
            best.setdefault(candidate.training.trial_id, candidate)
        if not best:
            raise AssertionError(f"experiment {self.id} has no checkpoint")
        return list(best.values())[:limit]

    def __repr__(self) -> str:
        return f"Experiment(id={self.id})"


class ExperimentReference(Experiment):
    """An older name of ``Experiment``."""
