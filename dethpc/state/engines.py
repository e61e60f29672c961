"""Connections: one engine for the writer, one for readers, set up so that a commit is durable and a reader cannot write."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from dethpc.errors import StoreError, StoreUnavailable

log = logging.getLogger(__name__)

_BUSY_MS = 30_000
_CACHE_KIB = 512  # of each connection to SQLite
_LONGEST_PATH = 504  # bytes: SQLite takes 512, and needs 8 for the name of its journal

_TO_A_SERVER = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Parameters of libpq, unless the URL has others: a server that is gone is noticed within half a minute."""

_SERVER_AWAY = frozenset({"57P01", "57P02", "57P03", "53300"})
"""PostgreSQL's codes for: shut down by its administrator, crashed, still starting, no connection left."""


TOLD_AFTER = 10.0
"""Seconds without an answer after which it is told: the server may just be starting again."""


def connect(url: str) -> tuple[Engine, Engine]:
    """The writer's and the readers' engine. Raises: StoreError, whose words never hold the URL: it may have a password."""
    parsed = parse(url)
    if isinstance(parsed, Path):
        return _sqlite(parsed)
    return _postgresql(parsed)


def parse(url: str) -> Path | URL:
    """The file of an SQLite database, or the address of one on a PostgreSQL server. Raises: StoreError."""
    if "://" not in url:
        return Path(url)
    try:
        parsed = make_url(url.replace("postgres://", "postgresql://", 1) if url.startswith("postgres://") else url)
    except (ArgumentError, ValueError):
        raise StoreError(
            f"not a database URL; use a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE. {_QUOTE}"
        ) from None
    if parsed.get_backend_name() == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise StoreError("the state database must be a file")
        return Path(parsed.database)
    if parsed.get_backend_name() != "postgresql":
        raise StoreError(f"no support for {parsed.get_backend_name()}; use sqlite or postgresql")
    if "@" in (parsed.host or ""):  # a part of the password that would be shown as a host
        raise StoreError(f"the database URL has more than one @. {_QUOTE}")
    return parsed.set(drivername="postgresql+psycopg")


_QUOTE = "In a user or password, write % as %25, @ as %40, / as %2F, : as %3A, ? as %3F and # as %23"


@contextmanager
def as_store_error() -> Iterator[None]:
    """Raises what the driver raises as ours."""
    try:
        yield
    except SQLAlchemyError as error:
        raise store_error(error) from error


def store_error(error: BaseException) -> StoreError:
    """The error of the driver as ours."""
    if unavailable(error):
        reason = " ".join(str(getattr(error, "orig", error)).split())
        return StoreUnavailable(f"the database server does not answer: {reason}")
    orig = str(getattr(error, "orig", error))
    advice = next((advice for symptom, advice in _ADVICE.items() if symptom in orig), "")
    # What has a remedy needs no statement; anything else may be a mistake of ours, and the statement says where.
    return StoreError(f"the database failed: {orig if advice else error}{advice}")


_REBUILD = (
    "\nIts file is damaged. To make it again from the files on shared_fs: det master down; det master rebuild. "
    "Trials go on meanwhile"
)
_ADVICE = {
    "database disk image is malformed": _REBUILD,
    "file is not a database": _REBUILD,
    "due to lock timeout": "\nA master of yours is in the middle of writing to it: one that is frozen, perhaps on another host",
    "no schema has been selected": "\nNo schema of its search_path exists: create one, or leave search_path alone",
    "attempt to write a readonly database": (
        "\nIts file or its file system is read-only, as many become after an error of their disk: make it writable again, and the "
        "same will succeed. Until then lists show what was so before. Trials go on meanwhile"
    ),
    "disk I/O error": (
        "\nIts disk or file server failed, or is read-only by now: see dmesg, or ask its admin. Once it can be written, "
        "the same will succeed. Until then lists show what was so before. Trials go on meanwhile"
    ),
    "database or disk is full": "\nIts disk is full: make room, and the same will succeed. Trials go on meanwhile",
}
"""What to do about what the database says."""


def unavailable(error: BaseException) -> bool:
    """Whether the database is on a server that cannot be reached, or ended the connection. The same may succeed later."""
    orig = getattr(error, "orig", None)
    if not isinstance(error, DBAPIError) or type(orig).__module__.partition(".")[0] != "psycopg":
        return False
    code = getattr(orig, "sqlstate", None)
    # It never got as far as a server's code: nobody listens, or nothing comes back (ConnectionTimeout).
    away = code is None and any(kind.__name__ == "OperationalError" for kind in type(orig).__mro__)
    return away or error.connection_invalidated or code in _SERVER_AWAY or str(code).startswith("08")


def _sqlite(path: Path) -> tuple[Engine, Engine]:
    if (length := len(os.fsencode(path.absolute()))) > _LONGEST_PATH:
        raise StoreError(
            f"cannot open the state database {path}: its path has {length} bytes, and SQLite takes {_LONGEST_PATH}. "
            "Use a DETHPC_HOME with a shorter path"
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its log files the mode of the database
    except OSError as error:
        raise StoreError(f"cannot open the state database {path}: {error.strerror}") from error
    url = URL.create("sqlite", database=str(path))
    options: dict[str, Any] = {"connect_args": {"check_same_thread": False}, **_QUIET}
    writer = create_engine(url, pool_size=1, max_overflow=0, **options)
    reader = create_engine(url, pool_size=4, max_overflow=28, **options)
    # A connection's own cache grows to 2 MB otherwise, for up to 33 of them; the system's cache of the file serves as well.
    small = f"cache_size=-{_CACHE_KIB}"
    _pragmas(writer, "BEGIN IMMEDIATE", "journal_mode=WAL", "synchronous=FULL", small)
    _pragmas(reader, "BEGIN", "query_only=ON", small)

    @event.listens_for(reader, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.create_function("lower", 1, _lower, deterministic=True)

    return writer, reader


def _lower(text: str | None) -> str | None:
    """SQLite's own knows the letters of ASCII alone, and what people search for is put into small letters by Python."""
    return None if text is None else text.lower()


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
    given = {name: value for name, value in _TO_A_SERVER.items() if name not in url.query}
    options: dict[str, Any] = {"pool_pre_ping": True, "connect_args": given, **_QUIET}
    try:
        writer = create_engine(url, pool_size=1, max_overflow=0, **options)
        reader = create_engine(url, pool_size=4, max_overflow=28, isolation_level="REPEATABLE READ", **options)
        from dethpc.state.silence import Server
    except ModuleNotFoundError as error:
        raise StoreError("PostgreSQL needs the psycopg package: pip install 'psycopg[binary]'") from error
    server = Server()
    for engine in (writer, reader):
        event.listen(engine, "do_connect", lambda dialect, record, args, params: server.connect(*args, **params))

    @event.listens_for(writer, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.execute(_DURABLE)
        connection.execute(f"SET lock_timeout = {_BUSY_MS}")
        doubt = connection.execute(_DOUBT).fetchone()
        connection.commit()
        if doubt:
            log.warning("%s is off on the database server: a power failure there can destroy the database", doubt[0])

    @event.listens_for(writer, "begin")
    def alone(connection: Connection) -> None:
        connection.exec_driver_sql(_ALONE)

    @event.listens_for(reader, "connect")
    def may_only_read(connection: Any, _: Any) -> None:
        connection.read_only = True

    return writer, reader


_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
"""A commit is on disk when it is acknowledged, whatever the default of server, database or role."""

_ALONE = "SELECT pg_advisory_xact_lock(233262093, hashtext(current_schema()))"
"""One writer's transaction at a time in each schema, as SQLite's BEGIN IMMEDIATE has it. A master that took over opens the store
behind the last commit of the one before it, which may have been frozen between its look at the lease and that commit."""

_DOUBT = "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name"

_QUIET: dict[str, Any] = {"hide_parameters": True}
"""Rows hold configurations, and those secrets: errors, which are logged, name the statement alone."""


class Absence:
    """Since when one database server has been away: a lost connection is logged once, and its return once. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self._told = False

    def met(self, error: StoreUnavailable) -> None:
        """Somebody asked and had no answer."""
        now = time.monotonic()
        with self._lock:
            if self._since is None:
                self._since = now
            if self._told or now - self._since < TOLD_AFTER:
                return
            self._told = True
        log.error("%s; this master waits for it", error)

    def over(self) -> None:
        """Somebody asked and had an answer."""
        if self._since is None:  # nearly always: without the lock
            return
        with self._lock:
            since, logged = self._since, self._told
            self._since, self._told = None, False
        if logged and since is not None:
            log.warning("the database server answers again, after %.0f s", time.monotonic() - since)
