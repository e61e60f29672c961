"""What is held against nodes, and when attempts trained."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

whole = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "nodes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("failures", sa.Text(), nullable=False),
        sa.Column("excluded_since", sa.Double(), nullable=True),
        sa.Column("excluded_until", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_nodes"),
    )
    # Attempts of before have none of these: what they did is told by how they ended.
    for name in ("first_at", "first_steps", "last_at", "last_steps", "saved_at", "saving", "kept_at"):
        column = sa.Column(name, whole if name.endswith("steps") else sa.Double(), nullable=True)
        op.add_column("attempts", column)
