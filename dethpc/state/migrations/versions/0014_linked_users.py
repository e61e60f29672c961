"""The Unix user and group that a user is linked with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "fourteenth"
down_revision = "thirteenth"


def upgrade() -> None:
    with op.batch_alter_table("users") as table:
        table.add_column(sa.Column("agent", sa.Text(), nullable=True))
