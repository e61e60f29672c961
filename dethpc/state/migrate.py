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
    schema = revision(connection)
    if schema is None:
        _create(connection)
    elif schema != REVISION:
        run_migrations(connection, schema)
    # A new kind of record needs no migration: nothing but its own table is concerned. One that changes does.
    metadata.create_all(connection, tables=[TABLES[kind] for kind in records.KEYS])


def revision(connection: Connection) -> str | None:
    """The last migration that the database has seen; None when it is empty."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.scalar(select(_VERSION.c.version_num))


def _create(connection: Connection) -> None:
    """What all migrations together make of an empty database, without Alembic. A table that is there is not ours, and an error."""
    for tables in (metadata, _VERSION.metadata):
        tables.create_all(connection, checkfirst=False)
    connection.execute(_VERSION.insert().values(version_num=REVISION))


def run_migrations(connection: Connection, schema: str | None) -> None:
    """Those that come after ``schema``; None: all of them. Raises: StoreError."""
    from alembic import command  # 13 MB of memory that a master with an up-to-date database does not need
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    if schema in _UNRELEASED:
        raise StoreError(
            f"the state database has schema {schema}, which no release had; move the database aside and make it again from the run "
            "directories: det master rebuild"
        )
    revisions = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if schema is not None and schema not in revisions:
        raise StoreError(
            f"the state database was written by a newer release of dethpc (schema {schema}, this release knows {REVISION}); "
            "upgrade dethpc, or restore a backup made before the upgrade"
        )
    command.upgrade(config, REVISION)
