"""An index along which the experiments of a project are listed and counted."""

from __future__ import annotations

from alembic import op

revision = "eleventh"
down_revision = "tenth"


def upgrade() -> None:
    op.create_index("ix_experiments_project_id_state_created_at", "experiments", ["project_id", "state", "created_at"])
