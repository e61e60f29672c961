"""The tables, made from the dataclasses of the domain and of the sums below: a column for each field, typed by its annotation.

The meaning of each field is written there. There are no foreign keys: the one writer keeps rows consistent, and rows of one
transaction can be written in any order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, get_args, get_type_hints

from sqlalchemy import Index, MetaData, UniqueConstraint
from sqlalchemy import Table as SqlTable
from sqlmodel import Field, SQLModel

from dethpc.domain import facts, records
from dethpc.domain.facts import (
    Attempt,
    Checkpoint,
    Experiment,
    Metric,
    NodeHealth,
    PoolState,
    Run,
    SearchNote,
    Task,
    Trial,
)
from dethpc.state.columns import Choice, Flag, Json, Number, StorableText, Whole

REVISION = "fifteenth"
"""The newest migration: the schema that this module describes."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Table(SQLModel):
    """Base of the tables, with a schema of its own so that a program that also uses SQLModel is not mixed up with it."""

    metadata = metadata


@dataclass(slots=True)
class Summary:
    """All values of one metric of a trial.

    ``type`` is number, string, boolean, array, object or null; "string" also when reports differ in type. ``sum``, ``min``
    and ``max`` are for numbers alone; ``min`` and ``max`` leave NaN out. ``last`` is the value with the most steps, the later
    report among equals.
    """

    trial_id: int
    group: str
    name: str
    type: str
    count: int
    sum: float | None
    min: float | None
    max: float | None
    last: Any
    last_steps: int

    @property
    def key(self) -> tuple[int, str, str]:
        """Trial id, group, name of the metric."""
        return (self.trial_id, self.group, self.name)

    @property
    def mean(self) -> float | None:
        return None if self.sum is None else self.sum / self.count


@dataclass(slots=True)
class Best:
    """A validation that was the best of its experiment when it was reported: a line of the experiment's history.

    The metric is the searcher's. What is no finite number is never the best. Identified as the report that it came from.
    """

    run_id: str
    attempt: int
    seq: int
    experiment_id: int
    trial_id: int
    reported_at: float
    value: float


@dataclass(slots=True)
class MetricName:
    """A metric that some trial of the experiment has a summary of."""

    experiment_id: int
    group: str
    name: str


@dataclass(slots=True)
class Spent:
    """Where the slots of a run that has ended went, in slot-seconds: what ``domain.goodput`` says of its row and its attempts."""

    run_id: str
    experiment_id: int
    trial_id: int
    pool: str
    ended_at: float
    useful: float
    lost: float
    overhead: float
    waiting: float


@dataclass(slots=True)
class SpentSum:
    """What the runs of an experiment that have ended spent together."""

    experiment_id: int
    useful: float = 0.0
    lost: float = 0.0
    overhead: float = 0.0
    waiting: float = 0.0


@dataclass(slots=True)
class StoredSum:
    """How many checkpoints an experiment has, their bytes together, and how many of them are not deleted."""

    experiment_id: int
    count: int = 0
    size: int = 0
    kept: int = 0


KEYS: dict[type, tuple[str, ...]] = {
    **facts.KEYS,
    **records.KEYS,
    Summary: ("trial_id", "group", "name"),
    MetricName: ("experiment_id", "group", "name"),
    Best: ("run_id", "attempt", "seq"),
    Spent: ("run_id",),
    SpentSum: ("experiment_id",),
    StoredSum: ("experiment_id",),
}
"""What has a table, and its primary key. That of metrics is ``id`` instead: the order in which the writer took the reports in."""

INDEXES: dict[type, tuple[tuple[str, ...], ...]] = {
    Experiment: (
        ("state", "id"),
        ("created_at",),
        ("user_id", "id"),
        ("queue_id",),
        ("parent_id",),
        ("project_id", "state", "created_at"),
        ("external_id",),
        ("collect",),
    ),
    Trial: (
        ("experiment_id", "index"),
        ("experiment_id", "state", "id"),
        ("experiment_id", "best_validation"),
        ("experiment_id", "latest_validation"),
        ("experiment_id", "steps_completed"),
        ("experiment_id", "restarts"),
        ("experiment_id", "started_at", "ended_at", "ended_seconds"),
        ("experiment_id", "ended_at"),
        ("experiment_id", "id"),
        ("state", "id"),
        ("request_id",),
        ("experiment_id", "external_id"),
    ),
    Task: (("trial_id",), ("experiment_id",), ("state",)),
    Run: (("task_id", "number"), ("experiment_id", "state"), ("state",), ("scheduler_job_id",)),
    Attempt: (("task_id",), ("experiment_id",)),
    Checkpoint: (
        ("trial_id", "steps_completed", "state", "size"),
        ("experiment_id", "state", "reported_at"),
        ("experiment_id", "reported_at"),
        ("removing",),
    ),
    Metric: (("trial_id", "group", "steps_completed"),),
    Best: (("experiment_id", "reported_at"),),
    Spent: (("experiment_id", "trial_id"), ("ended_at",)),
    SearchNote: (("experiment_id", "trial_index"),),
    **records.FOUND_BY,
}

_NAMES: dict[type, str] = {
    PoolState: "pools",
    NodeHealth: "nodes",
    Summary: "metric_summaries",
    Best: "validation_history",
    Spent: "spent_slots",
    SpentSum: "spent_slots_of_experiments",
    StoredSum: "checkpoints_of_experiments",
    records.WebhookDelivery: "webhook_deliveries",
    records.Accelerators: "accelerators",
}
"""Tables that are not called as the plural of what they hold."""

_TYPES: dict[type, Any] = {int: Whole, float: Number, str: StorableText, bool: Flag}


def _table(kind: type) -> SqlTable:
    hints = get_type_hints(kind)
    body: dict[str, Any] = {"__module__": __name__, "__tablename__": name_of(kind), "__annotations__": {}}
    indexes = [Index(None, *columns) for columns in INDEXES.get(kind, ())]
    body["__table_args__"] = tuple(indexes)
    if kind is Metric:
        body["__annotations__"]["id"], body["id"] = int, Field(sa_type=Whole, primary_key=True)
        body["__table_args__"] = (UniqueConstraint(*KEYS[Metric]), *indexes, {"sqlite_autoincrement": False})
    for field in fields(kind):
        hint = hints[field.name]
        named = [part for part in get_args(hint) if part is not type(None)] if type(None) in get_args(hint) else [hint]
        optional = type(None) in get_args(hint)
        options: dict[str, Any] = {"sa_type": _column_type(named[0]), "nullable": optional}
        if options["sa_type"] is Whole:
            options["sa_column_kwargs"] = {"autoincrement": False}
        if field.name in KEYS[kind] and kind is not Metric:
            options["primary_key"] = True
        name = field.name
        if name == "metadata":  # what SQLModel calls its own
            name, options["sa_column_args"] = "metadata_", ["metadata"]
        body["__annotations__"][name], body[name] = Any, Field(**options)
    metaclass: Any = type(SQLModel)
    model = metaclass(kind.__name__, (Table,), body, table=True)
    return model.__table__  # type: ignore[no-any-return]


def name_of(kind: type) -> str:
    """What the table of a kind is called: ``search_notes`` holds each SearchNote."""
    return _NAMES.get(kind) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower() + "s"


def _column_type(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Choice(hint)
    return _TYPES.get(hint, Json)


TABLES: dict[type, SqlTable] = {kind: _table(kind) for kind in KEYS}
