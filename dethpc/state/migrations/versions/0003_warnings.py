"""What is amiss with what a trial reports, and with an experiment by it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "third"
down_revision = "second"


def upgrade() -> None:
    for name in ("experiments", "trials"):
        with op.batch_alter_table(name) as table:
            table.add_column(sa.Column("warning", sa.Text(), nullable=False, server_default=""))
        with op.batch_alter_table(name) as table:  # the default was for the rows that were there
            table.alter_column("warning", server_default=None)
