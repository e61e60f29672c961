"""Checkpoints on the wire."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from dethpc.domain import facts
from dethpc.domain.ids import AttemptId, task_id
from dethpc.domain.trial_config import TrialConfig
from dethpc.errors import ConfigError, NotSupportedYet
from dethpc.master.http.wire.base import Float, MaskedConfig, Pagination, Plain, Shallow, Wire, state, time
from dethpc.master.http.wire.trial import Metrics, split
from dethpc.state.queries import CheckpointOrigin
from dethpc.storage import ABOUT_OTHERS, build, elsewhere


class Training(Wire):
    """The training that wrote the checkpoint; ``validation_metrics`` are those reported at the same step."""

    trial_id: int
    experiment_id: int
    experiment_config: MaskedConfig
    hparams: Plain
    training_metrics: Metrics | None = None
    validation_metrics: Metrics | None
    searcher_metric: Float | None


class Checkpoint(Wire):
    uuid: str
    task_id: str
    allocation_id: str
    report_time: str
    resources: dict[str, str]
    metadata: Plain
    state: str
    storage_id: int | None
    reason: str  # why it is in this state: what is damaged
    training: Training
    elsewhere: str  # where training code put it, if not in the experiment's checkpoint_storage

    @classmethod
    def of(cls, fact: facts.Checkpoint, origin: CheckpointOrigin) -> Checkpoint:
        config = dict(origin.config)
        if fact.storage:
            config["checkpoint_storage"] = fact.storage
        configured = TrialConfig.from_json(origin.config).checkpoint_storage
        validation = None if origin.validation is None else split(origin.validation)[0]
        value: Any = (validation or {}).get(origin.metric)
        return cls(
            uuid=fact.uuid,
            task_id=task_id(fact.experiment_id, fact.trial_id),
            allocation_id=str(AttemptId(fact.run_id, fact.attempt)),
            report_time=time(fact.reported_at),
            resources={path: str(size) for path, size in fact.resources.items()},
            metadata={"steps_completed": fact.steps_completed, **fact.metadata},
            state=state(fact.state),
            storage_id=storage_id(fact.storage or configured),
            reason=fact.reason,
            elsewhere=elsewhere(fact.storage, configured),
            training=Training(
                trial_id=fact.trial_id,
                experiment_id=fact.experiment_id,
                experiment_config=config,
                hparams=origin.hparams,
                validation_metrics=None if validation is None else Metrics(avg_metrics=validation),
                searcher_metric=value if isinstance(value, (int, float)) else None,
            ),
        )


def storage_id(section: dict[str, Any]) -> int | None:
    """A number for the place that a ``checkpoint_storage`` section describes, the same on every master; None: it describes none."""
    if not section:
        return None
    try:
        place = str(build(section))
    except (ConfigError, NotSupportedYet):
        where = {name: value for name, value in section.items() if name not in ABOUT_OTHERS}
        place = json.dumps([section.get("type"), where], sort_keys=True)
    return int.from_bytes(hashlib.sha256(place.encode()).digest()[:4], "big") >> 1


class CheckpointAnswer(Wire):
    checkpoint: Checkpoint


class Checkpoints(Wire):
    checkpoints: list[Checkpoint]
    pagination: Pagination


class ReportedCheckpoint(Wire):
    """A checkpoint as a client spells it, who leaves out most of it when it is not about that."""

    uuid: str = ""
    task_id: str = ""
    metadata: Annotated[dict[str, Any] | None, Shallow] = None
    resources: dict[str, str | int] | None = None


class MetadataRequest(Wire):
    checkpoint: ReportedCheckpoint


class ResourcesPatch(Wire):
    resources: dict[str, str | int] | None = None


class CheckpointPatch(Wire):
    uuid: str
    resources: ResourcesPatch | None = None


class PatchRequest(Wire):
    checkpoints: list[CheckpointPatch] = []


class DeleteRequest(Wire):
    checkpoint_uuids: list[str] = []


class RemoveRequest(Wire):
    checkpoint_uuids: list[str] = []
    checkpoint_globs: list[str] = []
