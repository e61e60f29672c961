"""What scripts elsewhere call the experiments and trials that they report to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "fourth"
down_revision = "third"


def upgrade() -> None:
    for name in ("experiments", "trials"):
        with op.batch_alter_table(name) as table:
            table.add_column(sa.Column("external_id", sa.Text(), nullable=False, server_default=""))
        with op.batch_alter_table(name) as table:  # the default was for the rows that were there
            table.alter_column("external_id", server_default=None)
    op.create_index(op.f("ix_experiments_external_id"), "experiments", ["external_id"])
