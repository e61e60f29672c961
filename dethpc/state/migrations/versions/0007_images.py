"""The digest of the image that a trial's containers start from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "seventh"
down_revision = "sixth"


def upgrade() -> None:
    with op.batch_alter_table("trials") as table:
        table.add_column(sa.Column("image", sa.Text(), nullable=False, server_default=""))
    with op.batch_alter_table("trials") as table:  # the default was for the rows that were there
        table.alter_column("image", server_default=None)
