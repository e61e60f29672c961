"""What lists want: how many checkpoints of an experiment are not deleted, and indexes along which trials are sorted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "ninth"
down_revision = "eighth"

_SORTED_BY = (
    ("latest_validation",),
    ("steps_completed",),
    ("restarts",),
    ("started_at", "ended_at"),
    ("ended_at",),
)

whole = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    with op.batch_alter_table("checkpoints_of_experiments") as table:
        table.add_column(sa.Column("kept", whole, nullable=False, server_default="0"))
    with op.batch_alter_table("checkpoints_of_experiments") as table:  # the default was for the rows that were there
        table.alter_column("kept", server_default=None)
    op.get_bind().execute(
        sa.text(
            "UPDATE checkpoints_of_experiments SET kept = (SELECT count(*) FROM checkpoints WHERE checkpoints.experiment_id = "
            "checkpoints_of_experiments.experiment_id AND checkpoints.state != 'DELETED')"
        )
    )
    for names in _SORTED_BY:
        op.create_index("_".join(("ix_trials_experiment_id", *names)), "trials", ["experiment_id", *names])
    op.drop_index("ix_checkpoints_trial_id_steps_completed", "checkpoints")
    op.create_index(
        "ix_checkpoints_trial_id_steps_completed_state_size",
        "checkpoints",
        ["trial_id", "steps_completed", "state", "size"],
    )
    op.create_index("ix_spent_slots_ended_at", "spent_slots", ["ended_at"])
