"""Brings a database to the schema of this release. Runs in the caller's transaction: it happens whole or not at all."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, inspect, select

from dethpc.domain import records
from dethpc.errors import StoreError
from dethpc.state.tables import REVISION, TABLES, metadata

MIGRATIONS = Path(__file__).parent / "migrations"
_UNRELEASED = frozenset({"0001", "0002", "0003", "0004", "0005"})

_VERSION = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""Where Alembic keeps the last migration, as it makes it."""


def upgrade(connection: Connection) -> None:
    """In a writer's transaction, which keeps others out. Raises: StoreError when a newer release wrote the database, or none."""
    found = revision(connection)
    if found is None:
        _create(connection)
    elif found != REVISION:
        run_migrations(connection, found)
    # A new kind of record needs no migration: nothing but its own table is concerned. One that changes does.
    metadata.create_all(connection, tables=[TABLES[kind] for kind in records.KEYS])


def revision(connection: Connection) -> str | None:
    """The last migration that the database has seen; None when it is empty."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.scalar(select(_VERSION.c.version_num))


def _create(connection: Connection) -> None:
    """What all migrations together make of an empty database, without Alembic. A table that is there is not ours, and an error."""
    for each in (metadata, _VERSION.metadata):
        each.create_all(connection, checkfirst=False)
    connection.execute(_VERSION.insert().values(version_num=REVISION))


def run_migrations(connection: Connection, found: str | None) -> None:
    """Those that come after ``found``; None: all of them. Raises: StoreError."""
    from alembic import command  # 13 MB of memory that a master with an up-to-date database does not need
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
