"""The tables. Those of the nouns mirror ``domain.facts`` field by field; the meaning of each field is written there.

There are no foreign keys: the one writer keeps rows consistent, and rows of one transaction can be written in any order.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Index, MetaData, UniqueConstraint
from sqlmodel import Field, SQLModel

from dethpc.domain import states
from dethpc.state.columns import Choice, Flag, Json, Number, Whole, Words

REVISION = "0005"
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


def _text(**options: Any) -> Any:
    return Field(sa_type=Words, **options)


def _whole(**options: Any) -> Any:
    return Field(sa_type=Whole, sa_column_kwargs={"autoincrement": False}, **options)


def _number(**options: Any) -> Any:
    return Field(sa_type=Number, **options)


def _flag() -> Any:
    return Field(sa_type=Flag)


def _json(**options: Any) -> Any:
    return Field(sa_type=Json, **options)


def _choice(choices: type[Any]) -> Any:
    return Field(sa_type=Choice(choices))


class Experiment(Table, table=True):
    __tablename__ = "experiments"
    __table_args__ = (Index(None, "state", "id"), Index(None, "created_at"), Index(None, "owner", "id"))

    id: int = _whole(primary_key=True)
    owner: str = _text()
    config: dict[str, Any] = _json()
    original_config: str = _text()
    state: states.State = _choice(states.State)
    created_at: float = _number()
    seed: int = _whole()
    queue_id: str = _text(index=True)
    context_sha256: str = _text()
    name: str = _text()
    description: str = _text()
    labels: list[str] = _json()
    notes: str = _text()
    archived: bool = _flag()
    project_id: int = _whole()
    pool: str = _text()
    priority: int = _whole()
    weight: float = _number()
    max_slots: int | None = _whole()
    slots_per_trial: int = _whole()
    started_at: float | None = _number()
    ended_at: float | None = _number()
    progress: float = _number()
    parent_id: int | None = _whole(index=True)
    reason: str = _text()
    unmanaged: bool = _flag()
    queue_position: float | None = _number()  # never null: see migration 0003
    served: float | None = _number()


class Trial(Table, table=True):
    __tablename__ = "trials"
    __table_args__ = (
        Index(None, "experiment_id", "index"),
        Index(None, "experiment_id", "state", "id"),
        Index(None, "experiment_id", "best_validation"),
        Index(None, "experiment_id", "id"),
        Index(None, "state", "id"),
    )

    id: int = _whole(primary_key=True)
    experiment_id: int = _whole()
    index: int = _whole()
    hparams: dict[str, Any] = _json()
    seed: int = _whole()
    state: states.State = _choice(states.State)
    created_at: float = _number()
    request_id: str = _text(index=True)
    search: dict[str, Any] = _json()
    restarts: int = _whole()
    runs: int = _whole()
    lost: int = _whole()
    steps_completed: int = _whole()
    latest_checkpoint: str | None = _text()
    source_checkpoint: str | None = _text()
    best_validation: float | None = _number()
    latest_validation: float | None = _number()
    best_validation_steps: int | None = _whole()
    progress: float = _number()
    started_at: float | None = _number()
    ended_at: float | None = _number()
    reason: str = _text()
    early_exit: str = _text()
    metadata_: dict[str, Any] | None = _json(sa_column_args=["metadata"])  # never null: see migration 0002
    status: str | None = _text()
    stalled: int | None = _whole()  # never null: see migration 0004
    not_before: float | None = _number()


class Run(Table, table=True):
    __tablename__ = "runs"
    __table_args__ = (Index(None, "trial_id", "number"), Index(None, "experiment_id", "state"), Index(None, "state"))

    id: str = _text(primary_key=True)
    experiment_id: int = _whole()
    trial_id: int = _whole()
    number: int = _whole()
    state: states.RunState = _choice(states.RunState)
    created_at: float = _number()
    slots: int = _whole()
    pool: str = _text()
    intent: states.Intent = _choice(states.Intent)
    intent_reason: str = _text()
    token_sha256: str = _text()
    scheduler_job_id: str | None = _text(index=True)
    attempt: int = _whole()
    nodes: list[str] = _json()
    submitted_at: float | None = _number()
    started_at: float | None = _number()
    ended_at: float | None = _number()
    end: states.End | None = _choice(states.End)
    reason: str = _text()
    exit_code: int | None = _whole()
    stopping_since: float | None = _number()
    nice: int | None = _whole()  # never null: see migration 0003


class Attempt(Table, table=True):
    __tablename__ = "attempts"

    run_id: str = _text(primary_key=True)
    number: int = _whole(primary_key=True)
    trial_id: int = _whole(index=True)
    state: states.AttemptState = _choice(states.AttemptState)
    started_at: float = _number()
    ended_at: float | None = _number()
    applied_seq: int = _whole()
    applied_offset: int = _whole()
    resumed_from: str | None = _text()
    resumed_steps: int = _whole()
    void_after: int | None = _whole()
    nodes: list[str] = _json()
    end: states.End | None = _choice(states.End)
    reason: str = _text()
    first_at: float | None = _number()
    first_steps: int | None = _whole()
    last_at: float | None = _number()
    last_steps: int | None = _whole()
    saved_at: float | None = _number()
    saving: float | None = _number()
    kept_at: float | None = _number()


class NodeHealth(Table, table=True):
    __tablename__ = "nodes"

    name: str = _text(primary_key=True)
    failures: list[dict[str, Any]] = _json()
    excluded_since: float | None = _number()
    excluded_until: float | None = _number()
    reason: str = _text()


class Checkpoint(Table, table=True):
    __tablename__ = "checkpoints"
    __table_args__ = (
        Index(None, "trial_id", "steps_completed"),
        Index(None, "experiment_id", "state", "reported_at"),
        Index(None, "experiment_id", "reported_at"),
    )

    uuid: str = _text(primary_key=True)
    experiment_id: int = _whole()
    trial_id: int = _whole()
    run_id: str = _text()
    attempt: int = _whole()
    seq: int = _whole()
    state: states.CheckpointState = _choice(states.CheckpointState)
    steps_completed: int = _whole()
    reported_at: float = _number()
    metadata_: dict[str, Any] = _json(sa_column_args=["metadata"])
    resources: dict[str, int] = _json()
    storage: dict[str, Any] = _json()
    seconds: float | None = _number()


class Metric(Table, table=True):
    """``id`` is the order of report: the order in which the writer took the rows in."""

    __tablename__ = "metrics"
    __table_args__ = (
        UniqueConstraint("run_id", "attempt", "seq"),
        Index(None, "trial_id", "group", "steps_completed"),
        {"sqlite_autoincrement": False},
    )

    id: int = Field(sa_type=Whole, primary_key=True)
    run_id: str = _text()
    attempt: int = _whole()
    seq: int = _whole()
    experiment_id: int = _whole()
    trial_id: int = _whole()
    group: str = _text()
    steps_completed: int = _whole()
    reported_at: float = _number()
    metrics: dict[str, Any] = _json()


class SearchNote(Table, table=True):
    __tablename__ = "search_notes"

    experiment_id: int = _whole(primary_key=True)
    seq: int = _whole(primary_key=True)
    trial_index: int = _whole()
    kind: str = _text()
    data: dict[str, Any] = _json()


class PoolState(Table, table=True):
    __tablename__ = "pools"

    name: str = _text(primary_key=True)
    window: int = _whole()
    seen_at: float = _number()
    free: list[list[int]] = _json()
    node_slots: int = _whole()
    started: int = _whole()
    turn: float = _number()


class Summary(Table, table=True):
    """All values of one metric of a trial in a few numbers, kept with each commit. See ``state.summaries``."""

    __tablename__ = "metric_summaries"

    trial_id: int = _whole(primary_key=True)
    group: str = _text(primary_key=True)
    name: str = _text(primary_key=True)
    type: str = _text()
    count: int = _whole()
    sum: float | None = _number()
    min: float | None = _number()
    max: float | None = _number()
    last: Any = _json()
    last_steps: int = _whole()


class Token(Table, table=True):
    """A bearer token, by its digest: the token itself is nowhere in the database."""

    __tablename__ = "tokens"

    sha256: str = _text(primary_key=True)
    name: str = _text()
    owner: str = _text(index=True)
    created_at: float = _number()
    expires_at: float | None = _number()
    revoked: bool = _flag()
