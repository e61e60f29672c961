"""Checkpoints: lists, sizes, and the training that wrote each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, String, and_, bindparam, case, func, select, type_coerce

from dethpc.domain.facts import EVERYTHING, Checkpoint, Experiment, Metric, Trial
from dethpc.domain.states import CheckpointState, State
from dethpc.errors import NotFound
from dethpc.state import rows
from dethpc.state.columns import decoded_all
from dethpc.state.dialects import VALUES, execute_in_chunks
from dethpc.state.queries.page import Order, Page, Sorted, by_value, having, one, sort_key, total_of
from dethpc.state.tables import StoredSum

_experiment = rows.table(Experiment).c
_trial = rows.table(Trial).c
_checkpoint = rows.table(Checkpoint).c
_metric = rows.table(Metric).c
_stored = rows.table(StoredSum).c


def checkpoint(connection: Connection, uuid: str) -> Checkpoint:
    """Raises: NotFound, also where its experiment was deleted."""
    try:
        row = one(connection, Checkpoint, f"checkpoint {uuid}", uuid=uuid)
    except NotFound as error:
        if not _SHORTENED.fullmatch(uuid):
            raise
        all_of_it = "give all 36 characters of its uuid; det experiment list-checkpoints ID shows them"
        raise NotFound(f"{error}: {all_of_it}") from None
    if of_deleted(connection, row.experiment_id):
        raise NotFound(f"checkpoint {uuid} not found: its experiment {row.experiment_id} was deleted")
    return row


_SHORTENED = re.compile("[0-9a-f-]{4,24}")  # as pages show a uuid


def of_deleted(connection: Connection, experiment_id: int) -> bool:
    """Whether the experiment was deleted: rows of what belonged to it stay."""
    return connection.scalar(_STATE, {"experiment": experiment_id}) is State.DELETED


_STATE = select(_experiment.state).where(_experiment.id == bindparam("experiment"))


def checkpoints_like(connection: Connection, uuid: str, most: int = 50) -> list[str]:
    """The latest uuids that begin as this one does; one that is mistyped is mostly right at its beginning. None of experiments
    that were deleted."""
    query = select(_checkpoint.uuid).join(rows.table(Experiment), _experiment.id == _checkpoint.experiment_id)
    query = query.where(_checkpoint.uuid.startswith(uuid[:4], autoescape=True), _experiment.state != State.DELETED)
    return list(connection.scalars(query.order_by(_checkpoint.reported_at.desc()).limit(most)))


at_step_of_checkpoint = and_(
    _metric.trial_id == _checkpoint.trial_id,
    _metric.group == "validation",
    _metric.steps_completed == _checkpoint.steps_completed,
)
_nearest = (_metric.reported_at <= _checkpoint.reported_at, _metric.id)
"""Of several validations at the step of a checkpoint, the last one is its own: the last before it was saved, whatever weights were
validated since; else the last since."""
CHECKPOINT_KEYS: Mapping[str, ColumnElement[Any]] = {
    "uuid": _checkpoint.uuid,
    "trial_id": _checkpoint.trial_id,
    "batch_number": _checkpoint.steps_completed,
    "end_time": _checkpoint.reported_at,
    "state": _checkpoint.state,
}


_deleted = select(_experiment.id).where(_experiment.state == State.DELETED)


@dataclass(slots=True)
class CheckpointFilter:
    """At most one of ``experiment_id`` and ``trial_id``; with neither those of all experiments that were not deleted. With
    ``metric`` they are sorted by that validation metric; those without it come last, the newest of them first."""

    experiment_id: int | None = None
    trial_id: int | None = None
    states: frozenset[str] = frozenset()
    metric: str | None = None
    beginning: str = ""  # of uuids


@dataclass(slots=True)
class CheckpointOrigin:
    """The training that wrote a checkpoint. ``validation``: the metrics reported at the checkpoint's step."""

    config: dict[str, Any]
    metric: str  # of the searcher
    hparams: dict[str, Any]
    validation: dict[str, Any] | None


def list_checkpoints(
    connection: Connection, criteria: CheckpointFilter, order: Order, page: Page
) -> tuple[list[Checkpoint], int, int]:
    """The page, the total, and where the page begins. Raises: Refused for an unknown sort key."""
    where: list[ColumnElement[bool]] = []
    if criteria.experiment_id is not None:
        where.append(_checkpoint.experiment_id == criteria.experiment_id)
    if criteria.trial_id is not None:
        where.append(_checkpoint.trial_id == criteria.trial_id)
    if criteria.states:
        where.append(type_coerce(_checkpoint.state, String).in_(sorted(criteria.states)))
        if criteria.metric is not None:  # the best of those that will be there
            where.append(_checkpoint.removing != EVERYTHING)
    if criteria.beginning:
        where.append(_checkpoint.uuid.startswith(criteria.beginning, autoescape=True))
    if criteria.experiment_id is None and criteria.trial_id is None:
        where.append(_checkpoint.experiment_id.not_in(_deleted))
    total = _total(connection, criteria, where)
    begin = page.begin(total)
    if criteria.metric is None:
        key = sort_key(CHECKPOINT_KEYS, order, "searcher_metric")
        ordered = Sorted(where, key, _checkpoint.uuid, order.descending)
        return ordered.page(connection, Checkpoint, begin, page), total, begin
    values = {uuid: value for uuid, value in measured(connection, where, criteria.metric).items() if value == value}
    end = total if page.limit is None else min(total, begin + page.limit)
    uuids = list(values) if end <= len(values) else _newest(connection, where)  # who has no value comes last
    chosen = by_value(uuids, values, order, Page(begin, page.limit))
    by_uuid = {item.uuid: item for item in having(connection, Checkpoint, _checkpoint.uuid, chosen)}
    return [by_uuid[uuid] for uuid in chosen], total, begin


def _newest(connection: Connection, where: Sequence[ColumnElement[bool]]) -> list[str]:
    newest = select(_checkpoint.uuid).where(*where).order_by(_checkpoint.reported_at.desc(), _checkpoint.uuid.desc())
    return list(connection.scalars(newest))


def measured(connection: Connection, where: Sequence[ColumnElement[bool]], metric: str) -> dict[str, float]:
    """The number that was reported of the validation metric at the step of each checkpoint; of several as ``_nearest`` says."""
    text, quoted = type_coerce(_metric.metrics, String), json.dumps(metric)
    query = select(_checkpoint.uuid, text).where(*where, at_step_of_checkpoint).order_by(*_nearest)
    values: dict[str, float] = {}
    for some in connection.execute(query.execution_options(yield_per=1000)).partitions():
        named = [(uuid, metrics) for uuid, metrics in some if quoted in metrics]
        for (uuid, _), metrics in zip(named, decoded_all(metrics for _, metrics in named)):
            value = metrics.get(metric)
            if isinstance(value, (int, float)):
                values[uuid] = value
    return values


def checkpoints_of_experiment(connection: Connection, experiment_id: int) -> list[Checkpoint]:
    return rows.read(connection, Checkpoint, _checkpoint.experiment_id == experiment_id)


def checkpoints_of_trial(connection: Connection, trial_id: int) -> list[Checkpoint]:
    return rows.read(connection, Checkpoint, _checkpoint.trial_id == trial_id)


def checkpoint_seconds(connection: Connection, experiment_id: int, most: int = 100) -> list[float]:
    """How long saving each of the experiment's latest checkpoints took, as far as measured."""
    query = (
        select(_checkpoint.seconds)
        .where(_checkpoint.experiment_id == experiment_id)
        .order_by(_checkpoint.reported_at.desc())
        .limit(most)
    )
    return [seconds for seconds in connection.scalars(query) if seconds is not None]


def checkpoint_origins(connection: Connection, checkpoints: Sequence[Checkpoint]) -> dict[str, CheckpointOrigin]:
    """Where each checkpoint of a page comes from."""
    experiments = {item.experiment_id for item in checkpoints}
    origins = execute_in_chunks(connection, _CONFIGS, sorted(experiments))
    configs: dict[int, tuple[dict[str, Any], str]] = {id: (config, metric) for id, config, metric in origins}
    uuids = [item.uuid for item in checkpoints]
    hparams: dict[str, dict[str, Any]] = dict(execute_in_chunks(connection, _HPARAMS, uuids))
    validation: dict[str, dict[str, Any]] = dict(execute_in_chunks(connection, _MEASURED, uuids))
    return {
        item.uuid: CheckpointOrigin(
            *configs.get(item.experiment_id, ({}, "")), hparams.get(item.uuid, {}), validation.get(item.uuid)
        )
        for item in checkpoints
    }


_CONFIGS = select(_experiment.id, _experiment.config, _experiment.metric).where(_experiment.id.in_(VALUES))
_HPARAMS = (
    select(_checkpoint.uuid, _trial.hparams)
    .join(rows.table(Trial), _trial.id == _checkpoint.trial_id)
    .where(_checkpoint.uuid.in_(VALUES))
)
_MEASURED = (
    select(_checkpoint.uuid, _metric.metrics)
    .where(_checkpoint.uuid.in_(VALUES), at_step_of_checkpoint)
    .order_by(*_nearest)
)


def sizes_of_trials(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Number of checkpoints that are not deleted, and the bytes of all, by trial."""
    sums = execute_in_chunks(connection, _SIZES_OF_TRIALS, ids)
    return {id: (int(count), int(size)) for id, count, size in sums}


_there = _checkpoint.state != CheckpointState.DELETED
_SIZES_OF_TRIALS = (
    select(_checkpoint.trial_id, func.sum(case((_there, 1), else_=0)), func.sum(_checkpoint.size))
    .where(_checkpoint.trial_id.in_(VALUES))
    .group_by(_checkpoint.trial_id)
)


def sizes_of_experiments(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Number of checkpoints that are not deleted, and the bytes of all, by experiment."""
    return {id: (count, size) for id, count, size in execute_in_chunks(connection, _SIZES_OF_EXPERIMENTS, ids)}


_SIZES_OF_EXPERIMENTS = select(_stored.experiment_id, _stored.kept, _stored.size).where(
    _stored.experiment_id.in_(VALUES)
)


def _total(connection: Connection, criteria: CheckpointFilter, where: Sequence[ColumnElement[bool]]) -> int:
    if criteria.states or criteria.beginning or criteria.trial_id is not None:
        return total_of(connection, Checkpoint, where)
    query = select(func.coalesce(func.sum(_stored.count), 0))
    if criteria.experiment_id is not None:
        query = query.where(_stored.experiment_id == criteria.experiment_id)
    else:
        query = query.where(_stored.experiment_id.not_in(_deleted))
    return int(connection.scalar(query) or 0)
