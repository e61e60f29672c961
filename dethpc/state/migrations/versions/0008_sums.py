"""Where the slots of each run that has ended went; sums over each experiment's slots and checkpoints; an index by external id."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

from dethpc.domain.states import AttemptState, End
from dethpc.state.columns import Choice, Number
from dethpc.state.sums import AttemptTimes, RunTimes, of_run_that_ended

revision = "eighth"
down_revision = "seventh"

whole = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_AT_ONCE = 5000
_WENT = ("useful", "lost", "overhead", "waiting")
_RUN = ("id", "experiment_id", "trial_id", "pool", "slots", "created_at", "ended_at")
_ATTEMPT = (
    *("state", "started_at", "ended_at", "end", "resumed_steps", "first_at", "first_steps"),
    *("last_at", "last_steps", "saved_at", "saving", "kept_at"),
)


def upgrade() -> None:
    spent = op.create_table(
        "spent_slots",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("experiment_id", whole, nullable=False),
        sa.Column("trial_id", whole, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Double(), nullable=False) for name in ("ended_at", *_WENT)),
        sa.PrimaryKeyConstraint("run_id", name="pk_spent_slots"),
    )
    spent_sums = op.create_table(
        "spent_slots_of_experiments",
        sa.Column("experiment_id", whole, nullable=False, autoincrement=False),
        *(sa.Column(name, sa.Double(), nullable=False) for name in _WENT),
        sa.PrimaryKeyConstraint("experiment_id", name="pk_spent_slots_of_experiments"),
    )
    connection, made = op.get_bind(), []
    for run, rows in groupby(connection.execute(_times()), key=lambda row: RunTimes(*row[: len(_RUN)])):
        attempts = [AttemptTimes(*row[len(_RUN) :]) for row in rows if row[len(_RUN)] is not None]
        went = of_run_that_ended(run, attempts)
        made.append({column.name: getattr(went, column.name) for column in spent.columns})
    for start in range(0, len(made), _AT_ONCE):
        connection.execute(sa.insert(spent), made[start : start + _AT_ONCE])
    of = spent.c.experiment_id
    summed = sa.select(of, *(sa.func.sum(spent.c[name]) for name in _WENT)).group_by(of)
    connection.execute(sa.insert(spent_sums).from_select(["experiment_id", *_WENT], summed))
    op.create_table(
        "checkpoints_of_experiments",
        sa.Column("experiment_id", whole, nullable=False, autoincrement=False),
        *(sa.Column(name, whole, nullable=False) for name in ("count", "size")),
        sa.PrimaryKeyConstraint("experiment_id", name="pk_checkpoints_of_experiments"),
    )
    connection.execute(
        sa.text(
            "INSERT INTO checkpoints_of_experiments (experiment_id, count, size) "
            "SELECT experiment_id, count(*), sum(size) FROM checkpoints GROUP BY experiment_id"
        )
    )
    op.drop_index("ix_checkpoints_experiment_id_size", "checkpoints")
    op.create_index("ix_trials_experiment_id_external_id", "trials", ["experiment_id", "external_id"])
    op.create_index("ix_spent_slots_experiment_id_trial_id", "spent_slots", ["experiment_id", "trial_id"])


def _times() -> sa.Select[Any]:
    types = {"state": Choice(AttemptState), "end": Choice(End)}
    tasks = sa.table("tasks", sa.column("id"), sa.column("trial_id"))
    runs = sa.table("runs", sa.column("task_id"), sa.column("state"), *(sa.column(name, _type(name)) for name in _RUN))
    attempts = sa.table(
        "attempts",
        *(sa.column(name) for name in ("run_id", "number")),
        *(sa.column(name, types.get(name) or _type(name)) for name in _ATTEMPT),
    )
    told = [(tasks if name == "trial_id" else runs).c[name] for name in _RUN]
    return (
        sa.select(*told, *(attempts.c[name] for name in _ATTEMPT))
        .join_from(runs, tasks, tasks.c.id == runs.c.task_id)
        .join(attempts, attempts.c.run_id == runs.c.id, isouter=True)
        .where(runs.c.state == "ENDED", runs.c.experiment_id.is_not(None), tasks.c.trial_id.is_not(None))
        .order_by(runs.c.id, attempts.c.number)
    )


def _type(name: str) -> Number | None:
    return Number() if name.endswith("_at") or name == "saving" else None
