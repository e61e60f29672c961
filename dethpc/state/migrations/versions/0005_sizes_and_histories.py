"""What lists read instead of all reports and checkpoints: sizes, histories of best validations, and names of metrics."""

from __future__ import annotations

import json
import math
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "fifth"
down_revision = "fourth"

whole = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_AT_ONCE = 5000


def upgrade() -> None:
    with op.batch_alter_table("checkpoints") as table:
        table.add_column(sa.Column("size", whole, nullable=False, server_default="0"))
    with op.batch_alter_table("checkpoints") as table:  # the default was for the rows that were there
        table.alter_column("size", server_default=None)
    op.create_table(
        "metric_names",
        sa.Column("experiment_id", whole, nullable=False, autoincrement=False),
        sa.Column("group", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "group", "name", name="pk_metric_names"),
    )
    op.create_table(
        "validation_history",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("attempt", whole, nullable=False, autoincrement=False),
        sa.Column("seq", whole, nullable=False, autoincrement=False),
        sa.Column("experiment_id", whole, nullable=False),
        sa.Column("trial_id", whole, nullable=False),
        sa.Column("reported_at", sa.Double(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "attempt", "seq", name="pk_validation_history"),
    )
    connection = op.get_bind()
    _sizes(connection)
    connection.execute(
        sa.text(
            'INSERT INTO metric_names (experiment_id, "group", name) SELECT DISTINCT trials.experiment_id, '
            'metric_summaries."group", metric_summaries.name FROM metric_summaries JOIN trials ON trials.id = trial_id'
        )
    )
    _histories(connection)
    op.create_index("ix_search_notes_experiment_id_trial_index", "search_notes", ["experiment_id", "trial_index"])
    op.create_index("ix_checkpoints_experiment_id_size", "checkpoints", ["experiment_id", "size"])
    op.create_index(
        "ix_validation_history_experiment_id_reported_at", "validation_history", ["experiment_id", "reported_at"]
    )


def _sizes(connection: sa.Connection) -> None:
    sized = sa.text("UPDATE checkpoints SET size = :size WHERE uuid = :uuid")
    rows = connection.execute(sa.text("SELECT uuid, resources FROM checkpoints")).all()
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        connection.execute(sized, [{"uuid": uuid, "size": sum(json.loads(files).values())} for uuid, files in some])


def _histories(connection: sa.Connection) -> None:
    reports = sa.text(
        "SELECT run_id, attempt, seq, trial_id, reported_at, metrics FROM metrics WHERE \"group\" = 'validation' AND trial_id "
        "IN (SELECT id FROM trials WHERE experiment_id = :id) ORDER BY reported_at, id"
    )
    line = sa.text(
        "INSERT INTO validation_history (run_id, attempt, seq, experiment_id, trial_id, reported_at, value) "
        "VALUES (:run_id, :attempt, :seq, :id, :trial_id, :at, :value)"
    )
    for id, metric, smaller in connection.execute(
        sa.text("SELECT id, metric, smaller_is_better FROM experiments")
    ).all():
        best, history = None, []
        for run_id, attempt, seq, trial_id, at, metrics in connection.execute(reports, {"id": id}):
            value = _number(json.loads(metrics).get(metric))
            if value is not None and (best is None or (value < best if smaller else value > best)):
                best = value
                own: dict[str, Any] = {"run_id": run_id, "attempt": attempt, "seq": seq, "trial_id": trial_id}
                history.append({**own, "id": id, "at": at, "value": value})
        if history:
            connection.execute(line, history)


def _number(value: Any) -> float | None:
    try:
        number = float(value) if isinstance(value, (int, float)) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
