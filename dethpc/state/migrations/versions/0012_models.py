"""What a registered version of a model says of itself. Until now nothing registered any."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "twelfth"
down_revision = "eleventh"

whole = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_ADDED: tuple[tuple[str, Any, str], ...] = (
    ("user_id", whole, "1"),
    ("updated_at", sa.Double(), "0"),
    ("name", sa.Text(), ""),
    ("comment", sa.Text(), ""),
    ("notes", sa.Text(), ""),
    ("labels", sa.Text(), "[]"),
    ("metadata", sa.Text(), "{}"),
)


def upgrade() -> None:
    if not sa.inspect(op.get_bind()).has_table("model_versions"):  # it is made with those of the other kinds of records
        return
    with op.batch_alter_table("model_versions") as table:
        for name, kind, default in _ADDED:
            table.add_column(sa.Column(name, kind, nullable=False, server_default=default))
    with op.batch_alter_table("model_versions") as table:  # the defaults were for the rows that were there
        for name, _, _ in _ADDED:
            table.alter_column(name, server_default=None)
