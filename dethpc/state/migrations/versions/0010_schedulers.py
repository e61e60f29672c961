"""Which scheduler has a run's job: no other can tell what became of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "tenth"
down_revision = "ninth"


def upgrade() -> None:
    with op.batch_alter_table("runs") as table:
        table.add_column(sa.Column("scheduler", sa.Text(), nullable=False, server_default=""))
    with op.batch_alter_table("runs") as table:  # the default was for the rows that were there
        table.alter_column("scheduler", server_default=None)
