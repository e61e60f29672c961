"""Checkpoints on the wire."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from dethpc.domain import facts
from dethpc.domain.ids import AttemptId, task_id
from dethpc.domain.trial_config import TrialConfig
from dethpc.errors import ConfigError, NotSupportedYet
from dethpc.master.http.models import Float, MaskedConfig, Pagination, Plain, Shallow, Shown, Wire, state, time
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
    validation_metrics: Metrics
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
    def of(cls, fact: facts.Checkpoint, origin: CheckpointOrigin, place: Place | None = None) -> Checkpoint:
        """``place``: of this checkpoint, where ``listed`` knows it already."""
        place = place or Place.of(fact.storage, origin.config)
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
            storage_id=place.id,
            reason=fact.reason or ("its files are being removed" if fact.removing else ""),
            elsewhere=place.elsewhere,
            training=Training(
                trial_id=fact.trial_id,
                experiment_id=fact.experiment_id,
                experiment_config=place.config,
                hparams=origin.hparams,
                validation_metrics=Metrics(avg_metrics=validation),
                searcher_metric=value if isinstance(value, (int, float)) else None,
            ),
        )


class Place(NamedTuple):
    """Where checkpoints are, and the configuration that is told with them. ``id``: see ``storage_id``."""

    id: int | None
    elsewhere: str
    config: Shown

    @classmethod
    def of(cls, storage: dict[str, Any], config: dict[str, Any]) -> Place:
        """Of those that training code put into ``storage`` ({}: into the experiment's own), by the experiment's configuration."""
        configured = TrialConfig.from_json(config).checkpoint_storage
        told = (
            {**config, "checkpoint_storage": _without_read_from(storage or configured)}
            if storage or configured
            else config
        )
        return cls(storage_id(storage or configured), elsewhere(storage, configured), Shown.of(told))


def _without_read_from(section: dict[str, Any]) -> dict[str, Any]:
    """Published clients take no field that they do not know, to read where the section says."""
    return {name: value for name, value in section.items() if name != "read_from"}


def listed(found: Sequence[facts.Checkpoint], origins: Mapping[str, CheckpointOrigin]) -> list[Checkpoint]:
    """Those of a page. Most are of one experiment and lie in one place, which is worked out once."""
    places: dict[tuple[int, str], Place] = {}
    answer = []
    for fact in found:
        origin, key = origins[fact.uuid], (fact.experiment_id, json.dumps(fact.storage))
        if key not in places:
            places[key] = Place.of(fact.storage, origin.config)
        answer.append(Checkpoint.of(fact, origin, places[key]))
    return answer


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
