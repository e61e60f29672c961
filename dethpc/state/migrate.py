"""Brings a database to the schema of this release. Runs in the caller's transaction: it happens whole or not at all."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from dethpc.domain import records
from dethpc.errors import StoreError
from dethpc.state.tables import REVISION, TABLES, metadata

MIGRATIONS = Path(__file__).parent / "migrations"
_UNRELEASED = frozenset({"0001", "0002", "0003", "0004", "0005"})


def upgrade(connection: Connection) -> None:
    """In a writer's transaction, which keeps others out. Raises: StoreError when a newer release wrote the database, or none."""
    found = revision(connection)
    if found != REVISION:
        _migrate(connection, found)
    # A new kind of record needs no migration: nothing but its own table is concerned. One that changes does.
    metadata.create_all(connection, tables=[TABLES[kind] for kind in records.KEYS])


def revision(connection: Connection) -> str | None:
    """The last migration that the database has seen; None when it is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def _migrate(connection: Connection, found: str | None) -> None:
    from alembic import command  # 10 MB of memory that a master with an up-to-date database does not need
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    if found in _UNRELEASED:
        raise StoreError(
            f"the state database has schema {found}, which no release had; move the database aside and make it again from the run "
            "directories: det master rebuild"
        )
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise StoreError(
            f"the state database was written by a newer release of dethpc (schema {found}, this release knows {REVISION}); "
            "upgrade dethpc, or restore a backup made before the upgrade"
        )
    command.upgrade(config, REVISION)
