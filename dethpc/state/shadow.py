"""A database made beside the one in use, whose place it takes in one step when it is whole. The old one is kept.

Until then the one in use stays as it was, whatever happens to whoever fills the new one.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

from sqlalchemy import URL, Connection, inspect, text
from sqlalchemy.exc import OperationalError

from dethpc.errors import Refused, StoreError
from dethpc.state import engines
from dethpc.state.tables import metadata

_LOG_FILES = ("-wal", "-shm")
"""SQLite finds them by the name of their database."""

_OURS = "det master rebuild fills it"
"""The comment on a schema that may be dropped when a rebuild begins again."""


class Shadow(Protocol):
    url: str
    """The new database, empty at first."""

    def take_place(self) -> str | None:
        """Returns where the old database is kept, for people; None when there was none. Raises Refused while another program uses
        it, OSError, StoreError; the old one is still in use then."""


def shadow(url: str) -> Shadow:
    """Begin a new database; what is left of one that never took its place is removed. Raises OSError, StoreError."""
    parsed = engines.parse(url)
    return _Files(parsed) if isinstance(parsed, Path) else _Schemas(url, parsed)


class _Files:
    """SQLite: the new file takes the old one's name."""

    def __init__(self, database: Path) -> None:
        self._old, self._new = database, database.with_name(f"{database.name}.new")
        self.url = str(self._new)
        for path in (self._new, *(self._new.with_name(self._new.name + suffix) for suffix in _LOG_FILES)):
            path.unlink(missing_ok=True)

    def take_place(self) -> str | None:
        with open(self._new, "rb") as file:
            os.fsync(file.fileno())
        old, backup = self._old, _name_to_keep(self._old)
        if old.exists():
            _fold_log(old)  # from here on the old database is good without its log files
        there = old.exists()
        for suffix in _LOG_FILES:
            log_file = old.with_name(old.name + suffix)
            if log_file.exists():  # the database could not be read, or is gone
                log_file.rename(backup.with_name(backup.name + suffix))
        if there:
            try:
                os.link(old, backup)
            except OSError:  # a file system without hard links
                shutil.copy2(old, backup)
        self._new.replace(old)
        return str(backup) if there else None


def _name_to_keep(database: Path) -> Path:
    at = int(time.time())
    while (backup := database.with_name(f"{database.stem}.{at}.old{database.suffix}")).exists():
        at += 1
    return backup


def _fold_log(database: Path) -> None:
    """Bring what is in the log into the database file. One that is damaged stays as it is. Raises Refused while it is in use."""
    try:
        with closing(sqlite3.connect(database, timeout=30)) as connection:
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.DatabaseError:
        return
    if busy:
        raise Refused(f"another program uses {database}; end it, then run det master rebuild again")


class _Schemas:
    """PostgreSQL: a schema beside the one in use. Tables change theirs in one transaction, indexes and sequences with them."""

    def __init__(self, url: str, parsed: URL) -> None:
        self._url = url
        with self._connection() as connection:
            schema = connection.scalar(text("SELECT current_schema()"))
            if schema is None:
                raise StoreError(
                    "no schema of the database's search_path exists: create one, or leave search_path alone"
                )
            self._old, self._new = str(schema), f"{schema}_new"
            if inspect(connection).has_schema(self._new):
                self._drop_left_over(connection)
            connection.execute(text(f"CREATE SCHEMA {_quoted(connection, self._new)}"))
            connection.execute(text(f"COMMENT ON SCHEMA {_quoted(connection, self._new)} IS '{_OURS}'"))
            search_path = _quoted(connection, self._new).replace("\\", "\\\\").replace(" ", "\\ ")
            options = f"{parsed.query.get('options', '')} -csearch_path={search_path}".strip()
        self.url = parsed.update_query_dict({"options": options}).render_as_string(hide_password=False)

    def take_place(self) -> str | None:
        with self._connection() as connection:
            connection.execute(text("SET LOCAL lock_timeout = '30s'"))
            ours = {*metadata.tables, "alembic_version"}
            there = sorted(ours & set(inspect(connection).get_table_names(self._old)))
            backup = self._name_to_keep(connection)
            if there:
                connection.execute(text(f"CREATE SCHEMA {_quoted(connection, backup)}"))
            try:
                for name in there:
                    self._move(connection, name, self._old, backup)
            except OperationalError as error:
                if getattr(error.orig, "sqlstate", None) != "55P03":  # lock not available
                    raise
                raise Refused("another program uses the database; end it, then run det master rebuild again") from None
            for name in inspect(connection).get_table_names(self._new):
                self._move(connection, name, self._new, self._old)
            connection.execute(text(f"DROP SCHEMA {_quoted(connection, self._new)}"))
        return f"schema {backup} of the same database" if there else None

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """One transaction."""
        writer, reader = engines.connect(self._url)
        try:
            with engines.as_store_error(), writer.begin() as connection:
                yield connection
        finally:
            writer.dispose()
            reader.dispose()

    def _drop_left_over(self, connection: Connection) -> None:
        comment = connection.scalar(
            text("SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = :name"),
            {"name": self._new},
        )
        if comment != _OURS:
            raise Refused(f"the database has a schema {self._new} of other origin; drop or rename it, then try again")
        connection.execute(text(f"DROP SCHEMA {_quoted(connection, self._new)} CASCADE"))

    def _name_to_keep(self, connection: Connection) -> str:
        at = int(time.time())
        while inspect(connection).has_schema(backup := f"{self._old}_old_{at}"):
            at += 1
        return backup

    @staticmethod
    def _move(connection: Connection, table: str, source: str, to: str) -> None:
        quoted = [_quoted(connection, name) for name in (source, table, to)]
        connection.execute(text("ALTER TABLE {}.{} SET SCHEMA {}".format(*quoted)))


def _quoted(connection: Connection, name: str) -> str:
    return connection.dialect.identifier_preparer.quote_identifier(name)
