"""What training code says of its trial: metadata and status."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # SQLite adds a column without a default as nullable only; every row gets a value all the same.
    op.add_column("trials", sa.Column("metadata", sa.Text(), nullable=True))
    op.add_column("trials", sa.Column("status", sa.Text(), nullable=True))
    op.execute("UPDATE trials SET metadata = '{}', status = ''")
