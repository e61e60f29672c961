"""What is kept so that nothing loops for ever: runs without progress, rests after failures, the cost of checkpoints."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("trials", sa.Column("stalled", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True))
    op.add_column("trials", sa.Column("not_before", sa.Double(), nullable=True))
    op.add_column("checkpoints", sa.Column("seconds", sa.Double(), nullable=True))
    op.execute("UPDATE trials SET stalled = 0")
