"""Which user created an experiment, or launched a task: of those that were there, the owner."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "fifteenth"
down_revision = "fourteenth"

whole = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.drop_index("ix_experiments_owner_id", "experiments")
    for name in ("experiments", "tasks"):
        with op.batch_alter_table(name) as table:
            table.add_column(sa.Column("user_id", whole, nullable=False, server_default="1"))
        with op.batch_alter_table(name) as table:  # the default was for the rows that were there
            table.alter_column("user_id", server_default=None)
    op.create_index("ix_experiments_user_id_id", "experiments", ["user_id", "id"])
