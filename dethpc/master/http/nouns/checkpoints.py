"""Routes and wire models of checkpoints: lists, archives, metadata and deletion."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, Header, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from dethpc.domain import facts
from dethpc.domain.facts import Experiment
from dethpc.domain.ids import AttemptId, task_id
from dethpc.domain.reports import ReportKind
from dethpc.errors import ConfigError, NotFound, NotSupportedYet, Refused
from dethpc.master.durable.records import Records
from dethpc.master.experiments.archives import checkpoint_archives
from dethpc.master.experiments.claims import Claims
from dethpc.master.http.access import (
    AnyPrincipal,
    Editor,
    EditorSomewhere,
    OrderBy,
    Reading,
    TheCheckpoints,
    TheInstallation,
    ThePage,
    TheRecords,
    TheStore,
    TheUnmanaged,
    ViewerSomewhere,
    may_see_experiment,
    order,
    whole,
)
from dethpc.master.http.models import (
    CHECKPOINT_STATES,
    Float,
    MaskedConfig,
    Pagination,
    Plain,
    Shallow,
    Shown,
    Wire,
    names_of_states,
    state,
    time,
)
from dethpc.master.http.nouns.metrics import Metrics, split
from dethpc.master.http.router import new_router
from dethpc.state import queries
from dethpc.state.queries import CheckpointFilter, CheckpointOrigin
from dethpc.state.store import ReadStore
from dethpc.storage import ABOUT_OTHERS, build, elsewhere, globs


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
        configured = config.get("checkpoint_storage") or {}
        shown_config = (
            {**config, "checkpoint_storage": _without_read_from(storage or configured)}
            if storage or configured
            else config
        )
        return cls(storage_id(storage or configured), elsewhere(storage, configured), Shown.of(shown_config))


def _without_read_from(section: dict[str, Any]) -> dict[str, Any]:
    """Published clients take no field that they do not know, to read where the section says."""
    return {name: value for name, value in section.items() if name != "read_from"}


def listed(checkpoints: Sequence[facts.Checkpoint], origins: Mapping[str, CheckpointOrigin]) -> list[Checkpoint]:
    """Those of a page. Most are of one experiment and lie in one place, which is worked out once."""
    places: dict[tuple[int, str], Place] = {}
    answer = []
    for fact in checkpoints:
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


class _CheckpointQuery:
    """Which of the checkpoints, in which order. Without an order, the searcher's metric is sorted best first."""

    def __init__(
        self,
        paging: ThePage,
        order_by: OrderBy = "",
        sort_by_attr: Annotated[str, Query(alias="sortByAttr")] = "",
        sort_by_metric: Annotated[str, Query(alias="sortByMetric")] = "",
        states: Annotated[tuple[str, ...], Query()] = (),
    ) -> None:
        self._paging = paging
        self._by_searcher = sort_by_attr == "SORT_BY_SEARCHER_METRIC"
        self._order = order("" if self._by_searcher else sort_by_attr, order_by, "end_time")
        self._unordered = order_by in ("", "ORDER_BY_UNSPECIFIED")
        self._metric = sort_by_metric or None
        self._states = frozenset(names_of_states(states, CHECKPOINT_STATES))

    def of(
        self, connection: Connection, experiment: Experiment | None, beginning: str = "", **owner: int
    ) -> Checkpoints:
        """``owner``: ``experiment_id`` or ``trial_id``. ``beginning``: of their uuids. ``experiment`` is the one they belong to;
        None: those of all, which have no metric in common."""
        metric = self._metric if experiment else None
        criteria = CheckpointFilter(**owner, states=self._states, metric=metric, beginning=beginning)
        if self._by_searcher and experiment is not None:
            criteria.metric = experiment.metric
            if self._unordered:
                self._order.descending = not experiment.smaller_is_better
        rows, total, begin = queries.list_checkpoints(connection, criteria, self._order, self._paging.page)
        origins = queries.checkpoint_origins(connection, rows)
        items = listed(rows, origins)
        return Checkpoints(checkpoints=items, pagination=self._paging.pagination(total, begin, len(items)))


CheckpointList = Annotated[_CheckpointQuery, Depends()]


router = new_router(prefix="/api/v1/checkpoints", tags=["checkpoints"])
archives = new_router(prefix="/checkpoints", tags=["checkpoints"])


@router.get("")
def list_checkpoints(
    query: CheckpointList,
    connection: Reading,
    who: ViewerSomewhere,
    uuid: Annotated[str, Query(description="Only those whose uuid begins so.")] = "",
) -> Checkpoints:
    """Ours: those of every experiment."""
    return query.of(connection, None, uuid)


@router.get("/{uuid}")
def get_checkpoint(uuid: str, connection: Reading, who: AnyPrincipal) -> CheckpointAnswer:
    fact = queries.checkpoint(connection, uuid)
    may_see_experiment(who, fact.experiment_id)
    origin = queries.checkpoint_origins(connection, [fact])[uuid]
    return CheckpointAnswer(checkpoint=Checkpoint.of(fact, origin))


@dataclass(frozen=True, slots=True)
class FileQuery:
    """The files of a checkpoint that are requested."""

    path: Annotated[
        tuple[str, ...], Query(description="Globs: only files that match, and all below folders that do.")
    ] = ()
    after: Annotated[str, Query(description="Only what comes after this path: to go on where an answer broke off.")] = (
        ""
    )

    def includes(self, name: str) -> bool:
        return name > self.after and (not self.path or globs.within(name, self.path))


@archives.get("/{uuid}")
def archive(
    uuid: str,
    store: TheStore,
    installation: TheInstallation,
    who: AnyPrincipal,
    query: Annotated[FileQuery, Depends()],
    accept: Annotated[str, Header()] = "",
) -> StreamingResponse:
    """The files in one archive: tar, or what ``Accept`` asks for."""
    with store.read() as connection:
        fact = queries.checkpoint(connection, uuid)
        may_see_experiment(who, fact.experiment_id)
        config = queries.checkpoint_origins(connection, [fact])[uuid].config
        experiment = queries.experiment(connection, fact.experiment_id) if who.is_run else None
    claims = Claims(installation.home, installation.cluster_id)
    claim = None if experiment is None else claims.of(experiment, fact)
    kind = checkpoint_archives.kind_of(accept)
    pieces = checkpoint_archives.archive(fact, config, installation.home, kind, query.includes, claim)
    name = f'attachment; filename="{uuid}.{checkpoint_archives.KINDS[kind]}"'
    return StreamingResponse(pieces, media_type=kind, headers={"Content-Disposition": name})


@router.post("")
def report_checkpoint(
    request: ReportedCheckpoint, store: TheStore, records: TheRecords, unmanaged: TheUnmanaged, who: EditorSomewhere
) -> dict[str, Any]:
    """A script outside the cluster stored a checkpoint."""
    _, _, trial = request.task_id.rpartition(".")
    steps = (request.metadata or {}).get("steps_completed")
    if not trial.isdecimal() or not isinstance(steps, (int, float)):
        raise Refused("a checkpoint needs the task that stored it, and steps_completed in its metadata")
    with store.read() as connection:
        queries.trial(connection, int(trial))
    _is_nobody_elses(records, store, request.uuid, int(trial))
    data = {
        "uuid": request.uuid,
        "steps_completed": whole(steps, "steps_completed"),
        "metadata": request.metadata,
        "resources": {path: whole(size, "a file's size") for path, size in (request.resources or {}).items()},
    }
    unmanaged.report(int(trial), ReportKind.CHECKPOINT, data)
    return {}


def _is_nobody_elses(records: Records, visible: ReadStore, uuid: str, trial_id: int) -> None:
    """Its files are deleted with the trial that has it, which need not be ``visible``. Raises Refused."""
    with contextlib.suppress(NotFound):
        with records.reading() as connection:
            owner = queries.checkpoint(connection, uuid).trial_id
        if owner != trial_id:
            with visible.read() as connection:
                shown = queries.checkpoints_by_id(connection, [uuid])
            whose = f"trial {owner}'s" if shown else "another trial's"
            raise Refused(f"checkpoint {uuid} is {whose}: give one that trial {trial_id} stored a uuid of its own")


@router.patch("")
def patch_checkpoints(
    request: PatchRequest, checkpoints: TheCheckpoints, connection: Reading, who: EditorSomewhere
) -> dict[str, Any]:
    """Take in which files are left of checkpoints."""
    resources = {
        one.uuid: {path: whole(size, "a file's size") for path, size in (one.resources.resources or {}).items()}
        for one in request.checkpoints
        if one.resources is not None
    }
    _check_visible(connection, resources)
    if resources:
        checkpoints.set_resources(resources)
    return {}


@router.delete("")
def delete_checkpoints(
    request: DeleteRequest, checkpoints: TheCheckpoints, connection: Reading, who: EditorSomewhere
) -> dict[str, Any]:
    """Delete checkpoints with their files, unless a trial that has not ended would start from one of them."""
    _check_visible(connection, request.checkpoint_uuids)
    checkpoints.delete(request.checkpoint_uuids)
    return {}


@router.post("/rm")
def remove_files(
    request: RemoveRequest, checkpoints: TheCheckpoints, connection: Reading, who: EditorSomewhere
) -> dict[str, Any]:
    """Delete files of checkpoints; without globs only look which there are."""
    _check_visible(connection, request.checkpoint_uuids)
    checkpoints.remove(request.checkpoint_uuids, request.checkpoint_globs)
    return {}


def _check_visible(connection: Connection, uuids: Iterable[str]) -> None:
    """Raises NotFound for a checkpoint of another workspace."""
    for uuid in uuids:
        queries.checkpoint(connection, uuid)


@router.post("/{uuid}/metadata")
def set_metadata(
    uuid: str, request: MetadataRequest, store: TheStore, checkpoints: TheCheckpoints, who: Editor
) -> CheckpointAnswer:
    """Replace the metadata; those in the checkpoint's own file stay as they were stored."""
    checkpoints.set_metadata(uuid, request.checkpoint.metadata or {})
    with store.read() as connection:
        fact = queries.checkpoint(connection, uuid)
        return CheckpointAnswer(checkpoint=Checkpoint.of(fact, queries.checkpoint_origins(connection, [fact])[uuid]))
