"""Connections: one engine for the writer, one for readers, set up so that a commit is durable and a reader cannot write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from dethpc.errors import StoreError

_BUSY_MS = 30_000
_CACHE_KIB = 512  # of each connection to SQLite


def connect(url: str) -> tuple[Engine, Engine]:
    """The writer's and the readers' engine. Raises: StoreError."""
    if "://" not in url:
        return _sqlite(Path(url))
    try:
        parsed = make_url(url.replace("postgres://", "postgresql://", 1) if url.startswith("postgres://") else url)
    except ArgumentError as error:
        raise StoreError("not a database URL; use a path, sqlite:///PATH or postgresql://...") from error
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise StoreError("the state database must be a file")
        return _sqlite(Path(parsed.database))
    if parsed.get_backend_name() == "postgresql":
        return _postgresql(parsed.set(drivername="postgresql+psycopg"))
    raise StoreError(f"no support for {parsed.get_backend_name()}; use sqlite or postgresql")


def _sqlite(path: Path) -> tuple[Engine, Engine]:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its log files the mode of the database
    except OSError as error:
        raise StoreError(f"cannot open the state database {path}: {error.strerror}") from error
    url = URL.create("sqlite", database=str(path))
    writer = create_engine(url, pool_size=1, max_overflow=0, connect_args={"check_same_thread": False})
    reader = create_engine(url, pool_size=4, max_overflow=28, connect_args={"check_same_thread": False})
    # A connection's own cache grows to 2 MB otherwise, for up to 33 of them; the system's cache of the file serves as well.
    small = f"cache_size=-{_CACHE_KIB}"
    _pragmas(writer, "BEGIN IMMEDIATE", "journal_mode=WAL", "synchronous=FULL", small)
    _pragmas(reader, "BEGIN", "query_only=ON", small)
    return writer, reader


def _pragmas(engine: Engine, begin: str, *pragmas: str) -> None:
    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # else the driver begins transactions of its own, and only before writes
        for pragma in (f"busy_timeout={_BUSY_MS}", *pragmas):
            connection.execute(f"PRAGMA {pragma}").fetchall()

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)


def _postgresql(url: URL) -> tuple[Engine, Engine]:
    try:
        writer = create_engine(url, pool_size=1, max_overflow=0, pool_pre_ping=True)
        reader = create_engine(url, pool_size=4, max_overflow=28, pool_pre_ping=True, isolation_level="REPEATABLE READ")
    except ModuleNotFoundError as error:
        raise StoreError("PostgreSQL needs the psycopg package: pip install 'psycopg[binary]'") from error

    @event.listens_for(reader, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.read_only = True

    return writer, reader
