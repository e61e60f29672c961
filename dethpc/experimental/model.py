"""The model registry: models, and the checkpoints that are registered as their versions."""

from __future__ import annotations

import datetime
import enum
import json
from typing import Any, Dict, Iterable, List, Optional

from dethpc.client.nouns import models
from dethpc.client.session import Session
from dethpc.domain.text.times import moment
from dethpc.experimental import metrics
from dethpc.experimental._order import OrderBy
from dethpc.experimental.checkpoint import Checkpoint
from dethpc.experimental.metrics import TrialMetrics


class ModelSortBy(enum.Enum):
    """Fields that models can be sorted by."""

    NAME = "SORT_BY_NAME"
    DESCRIPTION = "SORT_BY_DESCRIPTION"
    CREATION_TIME = "SORT_BY_CREATION_TIME"
    LAST_UPDATED_TIME = "SORT_BY_LAST_UPDATED_TIME"
    NUM_VERSIONS = "SORT_BY_NUM_VERSIONS"
    WORKSPACE = "SORT_BY_WORKSPACE"


class ModelOrderBy(enum.Enum):
    """An older name of ``OrderBy``."""

    ASCENDING = "ORDER_BY_ASC"
    ASC = "ORDER_BY_ASC"
    DESCENDING = "ORDER_BY_DESC"
    DESC = "ORDER_BY_DESC"


class ModelVersion:
    """A registered checkpoint. Its attributes are as of when it was fetched; ``reload`` fetches it again."""

    def __init__(self, session: Session, model_version: int, model_name: str) -> None:
        self._session = session
        self.model_name = model_name
        self.model_version = model_version
        self.model_id: Optional[int] = None
        self.checkpoint: Optional[Checkpoint] = None
        self.metadata: Optional[Dict[str, Any]] = None
        self.name: Optional[str] = None
        self.comment: Optional[str] = None
        self.notes: Optional[str] = None

    def __repr__(self) -> str:
        return f"ModelVersion(model_name={self.model_name}, model_version={self.model_version}, name={self.name})"

    @classmethod
    def _from_wire(cls, session: Session, wire: Dict[str, Any]) -> ModelVersion:
        version = cls(session, wire["version"], wire["model"]["name"])
        version._take(wire)
        return version

    def _take(self, wire: Dict[str, Any]) -> None:
        self.model_id = wire["model"]["id"]
        self.checkpoint = Checkpoint._from_wire(self._session, wire["checkpoint"])
        self.metadata = wire.get("metadata") or {}
        self.name = wire.get("name")
        self.comment = wire.get("comment") or ""
        self.notes = wire.get("notes") or ""

    def reload(self) -> None:
        self._take(models.version(self._session, self.model_name, self.model_version))

    def set_name(self, name: str) -> None:
        models.change_version(self._session, self.model_name, self.model_version, name=name)
        self.name = name

    def set_notes(self, notes: str) -> None:
        models.change_version(self._session, self.model_name, self.model_version, notes=notes)
        self.notes = notes

    def delete(self) -> None:
        """Its checkpoint stays."""
        models.delete_version(self._session, self.model_name, self.model_version)

    def get_metrics(self, group: Optional[str] = None) -> Iterable[TrialMetrics]:
        """An older name of ``iter_metrics``."""
        return self.iter_metrics(group)

    def iter_metrics(self, group: Optional[str] = None) -> Iterable[TrialMetrics]:
        """Reports of the trials that said they use it, of one group or of all. Raises NotFound."""
        return metrics.of_users(self._session, f"/api/v1/models/{self.model_id}/versions/{self.model_version}", group)


class Model:
    """A model. Its attributes are as of when it was fetched; ``reload`` fetches it again."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self.name = name
        self.model_id: Optional[int] = None
        self.description: Optional[str] = None
        self.creation_time: Optional[datetime.datetime] = None
        self.last_updated_time: Optional[datetime.datetime] = None
        self.metadata: Optional[Dict[str, Any]] = None
        self.labels: Optional[List[str]] = None
        self.username: Optional[str] = None
        self.workspace_id: Optional[int] = None
        self.archived: Optional[bool] = None

    @classmethod
    def _from_wire(cls, session: Session, wire: Dict[str, Any]) -> Model:
        model = cls(session, wire["name"])
        model._take(wire)
        return model

    def _take(self, wire: Dict[str, Any]) -> None:
        self.name = wire["name"]
        self.model_id = wire["id"]
        self.description = wire.get("description") or ""
        self.creation_time = moment(wire["creationTime"])
        self.last_updated_time = moment(wire["lastUpdatedTime"])
        self.metadata = wire.get("metadata") or {}
        self.labels = list(wire.get("labels") or [])
        self.username = wire.get("username") or ""
        self.workspace_id = wire.get("workspaceId")
        self.archived = wire.get("archived") or False

    def reload(self) -> None:
        self._take(models.model(self._session, self.name if self.model_id is None else self.model_id))

    def get_version(self, version: int = -1) -> Optional[ModelVersion]:
        """The version of this number; -1: the newest, None where there is none. Raises NotFound."""
        if version != -1:
            return ModelVersion._from_wire(self._session, models.version(self._session, self.name, version))
        for wire in models.versions(self._session, self.name, limit=1):
            return ModelVersion._from_wire(self._session, wire)
        return None

    def get_versions(self, order_by: OrderBy = OrderBy.DESC) -> List[ModelVersion]:
        """An older name of ``list_versions``."""
        return self.list_versions(order_by)

    def list_versions(self, order_by: OrderBy = OrderBy.DESC) -> List[ModelVersion]:
        """By their numbers."""
        rows = models.versions(self._session, self.name, orderBy=order_by.value)
        return [ModelVersion._from_wire(self._session, wire) for wire in rows]

    def register_version(self, checkpoint_uuid: str) -> ModelVersion:
        """Raises NotFound, Refused."""
        return ModelVersion._from_wire(self._session, models.register(self._session, self.name, checkpoint_uuid))

    def add_metadata(self, metadata: Dict[str, Any]) -> None:
        """Values of keys that are there are replaced."""
        self._change(metadata={**(self.metadata or {}), **metadata})

    def remove_metadata(self, keys: List[str]) -> None:
        """Raises ValueError unless ``keys`` is a list of strings."""
        if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
            raise ValueError(f"remove_metadata() takes a list of keys, not {keys!r}")
        self._change(metadata={key: value for key, value in (self.metadata or {}).items() if key not in keys})

    def move_to_workspace(self, workspace_name: str) -> None:
        """Raises NotFound."""
        self._change(workspaceName=workspace_name)

    def set_labels(self, labels: List[str]) -> None:
        """In the place of those that it has."""
        self._change(labels=list(labels))

    def set_description(self, description: str) -> None:
        self._change(description=description)

    def archive(self) -> None:
        models.act(self._session, self.name, "archive")
        self.archived = True

    def unarchive(self) -> None:
        models.act(self._session, self.name, "unarchive")
        self.archived = False

    def delete(self) -> None:
        """With its versions; their checkpoints stay."""
        models.delete(self._session, self.name)

    def __repr__(self) -> str:
        return f"Model(id={self.model_id}, name={self.name}, metadata={json.dumps(self.metadata)})"

    def _change(self, **fields: Any) -> None:
        self._take(models.change(self._session, self.name, **fields))
