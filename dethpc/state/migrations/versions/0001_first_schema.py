"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "first"
down_revision = None

whole = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "pools",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("window", whole, nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("free", sa.Text(), nullable=False),
        sa.Column("node_slots", whole, nullable=False),
        sa.Column("started", whole, nullable=False),
        sa.Column("turn", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_pools"),
    )
    op.create_table(
        "nodes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("failures", sa.Text(), nullable=False),
        sa.Column("excluded_since", sa.Double(), nullable=True),
        sa.Column("excluded_until", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_nodes"),
    )
    op.create_table(
        "experiments",
        sa.Column("id", whole, nullable=False, autoincrement=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("original_config", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("seed", whole, nullable=False),
        sa.Column("queue_id", sa.Text(), nullable=False),
        sa.Column("context_sha256", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("project_id", whole, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("priority", whole, nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("max_slots", whole, nullable=True),
        sa.Column("slots_per_trial", whole, nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("parent_id", whole, nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("imported_run", sa.Text(), nullable=False),
        sa.Column("queue_position", sa.Double(), nullable=False),
        sa.Column("served", sa.Double(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("smaller_is_better", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_experiments"),
    )
    op.create_index("ix_experiments_created_at", "experiments", ["created_at"])
    op.create_index("ix_experiments_owner_id", "experiments", ["owner", "id"])
    op.create_index("ix_experiments_parent_id", "experiments", ["parent_id"])
    op.create_index("ix_experiments_queue_id", "experiments", ["queue_id"])
    op.create_index("ix_experiments_state_id", "experiments", ["state", "id"])
    op.create_table(
        "trials",
        sa.Column("id", whole, nullable=False, autoincrement=False),
        sa.Column("experiment_id", whole, nullable=False),
        sa.Column("index", whole, nullable=False),
        sa.Column("hparams", sa.Text(), nullable=False),
        sa.Column("seed", whole, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("search", sa.Text(), nullable=False),
        sa.Column("restarts", whole, nullable=False),
        sa.Column("runs", whole, nullable=False),
        sa.Column("lost", whole, nullable=False),
        sa.Column("steps_completed", whole, nullable=False),
        sa.Column("latest_checkpoint", sa.Text(), nullable=True),
        sa.Column("source_checkpoint", sa.Text(), nullable=True),
        sa.Column("best_validation", sa.Double(), nullable=True),
        sa.Column("latest_validation", sa.Double(), nullable=True),
        sa.Column("best_validation_steps", whole, nullable=True),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("early_exit", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("stalled", whole, nullable=False),
        sa.Column("not_before", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_trials"),
    )
    op.create_index("ix_trials_experiment_id_best_validation", "trials", ["experiment_id", "best_validation"])
    op.create_index("ix_trials_experiment_id_id", "trials", ["experiment_id", "id"])
    op.create_index("ix_trials_experiment_id_index", "trials", ["experiment_id", "index"])
    op.create_index("ix_trials_experiment_id_state_id", "trials", ["experiment_id", "state", "id"])
    op.create_index("ix_trials_request_id", "trials", ["request_id"])
    op.create_index("ix_trials_state_id", "trials", ["state", "id"])
    op.create_table(
        "tasks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("queue_id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("experiment_id", whole, nullable=True),
        sa.Column("trial_id", whole, nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("slots", whole, nullable=False),
        sa.Column("priority", whole, nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("queue_position", sa.Double(), nullable=False),
        sa.Column("served", sa.Double(), nullable=False),
        sa.Column("runs", whole, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tasks"),
    )
    op.create_index("ix_tasks_experiment_id", "tasks", ["experiment_id"])
    op.create_index("ix_tasks_state", "tasks", ["state"])
    op.create_index("ix_tasks_trial_id", "tasks", ["trial_id"])
    op.create_table(
        "search_notes",
        sa.Column("experiment_id", whole, nullable=False, autoincrement=False),
        sa.Column("seq", whole, nullable=False, autoincrement=False),
        sa.Column("trial_index", whole, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("experiment_id", "seq", name="pk_search_notes"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("experiment_id", whole, nullable=True),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("number", whole, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("slots", whole, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("intent", sa.Text(), nullable=False),
        sa.Column("intent_reason", sa.Text(), nullable=False),
        sa.Column("token_sha256", sa.Text(), nullable=False),
        sa.Column("scheduler_job_id", sa.Text(), nullable=True),
        sa.Column("attempt", whole, nullable=False),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("submitted_at", sa.Double(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("end", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("exit_code", whole, nullable=True),
        sa.Column("stopping_since", sa.Double(), nullable=True),
        sa.Column("nice", whole, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_index("ix_runs_experiment_id_state", "runs", ["experiment_id", "state"])
    op.create_index("ix_runs_scheduler_job_id", "runs", ["scheduler_job_id"])
    op.create_index("ix_runs_state", "runs", ["state"])
    op.create_index("ix_runs_task_id_number", "runs", ["task_id", "number"])
    op.create_table(
        "attempts",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("number", whole, nullable=False, autoincrement=False),
        sa.Column("experiment_id", whole, nullable=True),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("applied_seq", whole, nullable=False),
        sa.Column("applied_offset", whole, nullable=False),
        sa.Column("resumed_from", sa.Text(), nullable=True),
        sa.Column("resumed_steps", whole, nullable=False),
        sa.Column("void_after", whole, nullable=True),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("end", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("first_at", sa.Double(), nullable=True),
        sa.Column("first_steps", whole, nullable=True),
        sa.Column("last_at", sa.Double(), nullable=True),
        sa.Column("last_steps", whole, nullable=True),
        sa.Column("saved_at", sa.Double(), nullable=True),
        sa.Column("saving", sa.Double(), nullable=True),
        sa.Column("kept_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "number", name="pk_attempts"),
    )
    op.create_index("ix_attempts_experiment_id", "attempts", ["experiment_id"])
    op.create_index("ix_attempts_task_id", "attempts", ["task_id"])
    op.create_table(
        "checkpoints",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("experiment_id", whole, nullable=False),
        sa.Column("trial_id", whole, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("attempt", whole, nullable=False),
        sa.Column("seq", whole, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("steps_completed", whole, nullable=False),
        sa.Column("reported_at", sa.Double(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("resources", sa.Text(), nullable=False),
        sa.Column("storage", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("uuid", name="pk_checkpoints"),
    )
    op.create_index("ix_checkpoints_experiment_id_reported_at", "checkpoints", ["experiment_id", "reported_at"])
    op.create_index(
        "ix_checkpoints_experiment_id_state_reported_at", "checkpoints", ["experiment_id", "state", "reported_at"]
    )
    op.create_index("ix_checkpoints_trial_id_steps_completed", "checkpoints", ["trial_id", "steps_completed"])
    op.create_table(
        "metrics",
        sa.Column("id", whole, nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("attempt", whole, nullable=False),
        sa.Column("seq", whole, nullable=False),
        sa.Column("experiment_id", whole, nullable=False),
        sa.Column("trial_id", whole, nullable=False),
        sa.Column("group", sa.Text(), nullable=False),
        sa.Column("steps_completed", whole, nullable=False),
        sa.Column("reported_at", sa.Double(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_metrics"),
        sa.UniqueConstraint("run_id", "attempt", "seq", name="uq_metrics_run_id_attempt_seq"),
    )
    op.create_index("ix_metrics_trial_id_group_steps_completed", "metrics", ["trial_id", "group", "steps_completed"])
    op.create_table(
        "users",
        sa.Column("id", whole, nullable=False, autoincrement=False),
        sa.Column("username", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("modified_at", sa.Double(), nullable=False),
        sa.Column("display_name", sa.Text(), nullable=False),
        sa.Column("password", sa.Text(), nullable=False),
        sa.Column("admin", sa.Boolean(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
    )
    op.create_index("ix_users_username", "users", ["username"])
    op.create_table(
        "tokens",
        sa.Column("id", whole, nullable=False, autoincrement=False),
        sa.Column("user_id", whole, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("revoked", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
    )
    op.create_index("ix_tokens_sha256", "tokens", ["sha256"])
    op.create_index("ix_tokens_user_id", "tokens", ["user_id"])
    op.create_table(
        "metric_summaries",
        sa.Column("trial_id", whole, nullable=False, autoincrement=False),
        sa.Column("group", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("count", whole, nullable=False),
        sa.Column("sum", sa.Double(), nullable=True),
        sa.Column("min", sa.Double(), nullable=True),
        sa.Column("max", sa.Double(), nullable=True),
        sa.Column("last", sa.Text(), nullable=False),
        sa.Column("last_steps", whole, nullable=False),
        sa.PrimaryKeyConstraint("trial_id", "group", "name", name="pk_metric_summaries"),
    )
