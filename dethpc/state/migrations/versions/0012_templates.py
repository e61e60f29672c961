"""Templates of configurations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "twelfth"
down_revision = "eleventh"


def upgrade() -> None:
    op.create_table(
        "templates",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_templates"),
    )
    op.create_index("ix_templates_workspace_id", "templates", ["workspace_id"])
