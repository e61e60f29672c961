"""Why a checkpoint is in its state: what the checks found when somebody restored it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "second"
down_revision = "first"


def upgrade() -> None:
    with op.batch_alter_table("checkpoints") as table:
        table.add_column(sa.Column("reason", sa.Text(), nullable=False, server_default=""))
    with op.batch_alter_table("checkpoints") as table:  # the default was for the rows that were there
        table.alter_column("reason", server_default=None)
