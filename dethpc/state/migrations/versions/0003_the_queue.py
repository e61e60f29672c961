"""QueueIndex in the queue, shares of pools that share, and what was last seen of pools."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    # SQLite adds a column without a default as nullable only; every row gets a value all the same.
    op.add_column("experiments", sa.Column("queue_position", sa.Double(), nullable=True))
    op.add_column("experiments", sa.Column("served", sa.Double(), nullable=True))
    op.add_column("experiments", sa.Column("metric", sa.Text(), nullable=True))
    op.add_column("experiments", sa.Column("smaller_is_better", sa.Boolean(), nullable=True))
    op.add_column("runs", sa.Column("nice", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True))
    op.execute("UPDATE experiments SET queue_position = created_at, served = 0, metric = '', smaller_is_better = true")
    op.execute("UPDATE runs SET nice = 0")
    whole = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "pools",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("window", whole, nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("free", sa.Text(), nullable=False),
        sa.Column("node_slots", whole, nullable=False),
        sa.Column("started", whole, nullable=False),
        sa.Column("turn", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_pools"),
    )
