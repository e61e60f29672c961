"""For how long an experiment or a trial was ended before it was continued."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "thirteenth"
down_revision = "twelfth"


def upgrade() -> None:
    for name in ("experiments", "trials"):
        with op.batch_alter_table(name) as table:
            table.add_column(sa.Column("ended_seconds", sa.Double(), nullable=False, server_default="0"))
        with op.batch_alter_table(name) as table:  # the default was for the rows that were there
            table.alter_column("ended_seconds", server_default=None)
    op.drop_index("ix_trials_experiment_id_started_at_ended_at", "trials")
    op.create_index(
        "ix_trials_experiment_id_started_at_ended_at_ended_seconds",
        "trials",
        ["experiment_id", "started_at", "ended_at", "ended_seconds"],
    )
