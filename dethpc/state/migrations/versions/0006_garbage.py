"""Checkpoints whose files are still to be removed, and experiments whose policy is still to be followed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "sixth"
down_revision = "fifth"


def upgrade() -> None:
    for name, column in (
        ("experiments", sa.Column("collect", sa.Boolean(), nullable=False, server_default=sa.false())),
        ("checkpoints", sa.Column("removing", sa.Text(), nullable=False, server_default="")),
    ):
        with op.batch_alter_table(name) as table:
            table.add_column(column)
        with op.batch_alter_table(name) as table:  # the default was for the rows that were there
            table.alter_column(column.name, server_default=None)
        op.create_index(op.f(f"ix_{name}_{column.name}"), name, [column.name])
