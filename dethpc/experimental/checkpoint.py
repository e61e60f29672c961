"""Checkpoints, as scripts work with them."""

from __future__ import annotations

import dataclasses
import enum
import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from dethpc.client.nouns import checkpoints
from dethpc.client.session import Session
from dethpc.errors import CheckpointStateException
from dethpc.experimental._download import DownloadMode as DownloadMode
from dethpc.experimental._download import download
from dethpc.experimental.metrics import TrialMetrics, of_users


class CheckpointState(enum.Enum):
    ACTIVE = "STATE_ACTIVE"
    COMPLETED = "STATE_COMPLETED"
    ERROR = "STATE_ERROR"
    DELETED = "STATE_DELETED"
    PARTIALLY_DELETED = "STATE_PARTIALLY_DELETED"


class CheckpointOrderBy(enum.Enum):
    """An older name of ``OrderBy``."""

    ASC = "ORDER_BY_ASC"
    DESC = "ORDER_BY_DESC"


class CheckpointSortBy(enum.Enum):
    """Fields that checkpoints can be sorted by."""

    UUID = "SORT_BY_UUID"
    TRIAL_ID = "SORT_BY_TRIAL_ID"
    BATCH_NUMBER = "SORT_BY_BATCH_NUMBER"
    END_TIME = "SORT_BY_END_TIME"
    STATE = "SORT_BY_STATE"
    SEARCHER_METRIC = "SORT_BY_SEARCHER_METRIC"


@dataclasses.dataclass
class CheckpointTrainingMetadata:
    """The training that a checkpoint comes from."""

    experiment_config: Dict[str, Any]
    experiment_id: int
    trial_id: int
    hparams: Dict[str, Any]
    validation_metrics: Dict[str, Any]


class Checkpoint:
    """A checkpoint. Its attributes are as of when it was fetched; ``reload`` fetches it again.

    ``resources`` maps paths to sizes in bytes.
    """

    def __init__(
        self,
        session: Session,
        uuid: str,
        task_id: Optional[str] = None,
        allocation_id: Optional[str] = None,
        report_time: Optional[str] = None,
        resources: Optional[Dict[str, Any]] = None,
        metadata: Optional[Dict[str, Any]] = None,
        state: Optional[CheckpointState] = None,
        training: Optional[CheckpointTrainingMetadata] = None,
    ) -> None:
        self._session = session
        self.uuid = uuid
        self.task_id = task_id
        self.allocation_id = allocation_id
        self.report_time = report_time
        self.resources = resources
        self.metadata = metadata
        self.state = state
        self.training = training

    @classmethod
    def _from_wire(cls, session: Session, wire: Dict[str, Any]) -> Checkpoint:
        checkpoint = cls(session, wire["uuid"])
        checkpoint._take(wire)
        return checkpoint

    def _take(self, wire: Dict[str, Any]) -> None:
        training = wire.get("training") or {}
        self.task_id = wire.get("taskId")
        self.allocation_id = wire.get("allocationId")
        self.report_time = wire.get("reportTime")
        self.resources = {path: int(size) for path, size in (wire.get("resources") or {}).items()}
        self.metadata = wire.get("metadata") or {}
        self.state = CheckpointState(wire["state"])
        self._elsewhere = wire.get("elsewhere") or ""
        self.training = CheckpointTrainingMetadata(
            experiment_config=training.get("experimentConfig") or {},
            experiment_id=training["experimentId"],
            trial_id=training["trialId"],
            hparams=training.get("hparams") or {},
            validation_metrics=training.get("validationMetrics") or {},
        )

    def reload(self) -> None:
        self._take(checkpoints.get(self._session, self.uuid))

    def download(self, path: Optional[str] = None, mode: DownloadMode = DownloadMode.AUTO) -> str:
        """Copy the checkpoint to ``path`` (default: ``checkpoints/<uuid>``) and return it; checksums are compared.

        A directory that holds a checkpoint already is left as it is. Raises CheckpointStateException unless the checkpoint is
        complete (or what is left of one), CheckpointError, and MultipleDownloadsFailed where neither the storage nor the master
        gives the files.
        """
        if self.state is None or self.training is None:
            self.reload()
        if self.state not in (CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED):
            raise CheckpointStateException(
                f"checkpoint {self.uuid} is {self.state and self.state.name}; it cannot be downloaded"
            )
        target = Path(path) if path is not None else Path("checkpoints", self.uuid)
        if not (target / "metadata.json").exists():
            assert self.training is not None
            wire = {
                "uuid": self.uuid,
                "elsewhere": self._elsewhere,
                "training": {"experimentConfig": self.training.experiment_config},
            }
            download(self._session, wire, target, DownloadMode(mode))
        if not (target / "metadata.json").exists():
            self.write_metadata_file(str(target / "metadata.json"))
        return str(target)

    def write_metadata_file(self, path: str) -> None:
        """Write the metadata, as the master has them, as JSON."""
        Path(path).write_text(json.dumps(self.metadata, indent=2))

    def add_metadata(self, metadata: Dict[str, Any]) -> None:
        """Add to the metadata that the master has; those in the checkpoint's files stay as they were stored."""
        self._set_metadata({**(self.metadata or {}), **metadata})

    def remove_metadata(self, keys: List[str]) -> None:
        """Remove names from the metadata that the master has."""
        self._set_metadata({name: value for name, value in (self.metadata or {}).items() if name not in keys})

    def _set_metadata(self, metadata: Dict[str, Any]) -> None:
        checkpoints.set_metadata(self._session, self.uuid, metadata)
        self.metadata = metadata

    def get_metrics(self, group: Optional[str] = None) -> Iterator[TrialMetrics]:
        """Reports of the trials that said they use it, of one group or of all. Raises NotFound."""
        return of_users(self._session, f"/api/v1/checkpoints/{self.uuid}", group)

    def delete(self) -> None:
        """Delete the checkpoint and its files. Raises Refused when a trial would still start from it."""
        checkpoints.delete(self._session, [self.uuid])

    def remove_files(self, globs: List[str]) -> None:
        """Delete the files that match; without globs the master looks which files there are."""
        checkpoints.remove_files(self._session, [self.uuid], globs)

    def __repr__(self) -> str:
        trial = f", trial_id={self.training.trial_id}" if self.training is not None else ""
        return f"Checkpoint(uuid={self.uuid}, task_id={self.task_id}{trial})"


def of_page(
    session: Session,
    path: str,
    sort_by: Any,
    order_by: Any,
    max_results: Optional[int],
) -> List[Checkpoint]:
    """The completed checkpoints below ``path``, sorted by a ``CheckpointSortBy`` or a validation metric's name.

    Raises ValueError unless both or neither of ``sort_by`` and ``order_by`` are given; by default the best come first.
    """
    if (sort_by is None) != (order_by is None):
        raise ValueError("give both sort_by and order_by, or neither")
    params: Dict[str, Any] = {"states": ["STATE_COMPLETED"], "limit": max_results or 0}
    if isinstance(sort_by, str):
        params["sortByMetric"] = sort_by
    else:
        params["sortByAttr"] = CheckpointSortBy(sort_by or CheckpointSortBy.SEARCHER_METRIC).value
    if order_by is not None:
        params["orderBy"] = order_by.value
    return [Checkpoint._from_wire(session, wire) for wire in session.get(path, params).get("checkpoints") or []]
