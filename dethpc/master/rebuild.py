"""``det master rebuild``: the database made again from the shared file system, beside the old one, and put in its place when it is
whole. A rebuild that is killed leaves the old database as it was; the next one begins again."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from dethpc.errors import Refused
from dethpc.master.durable import ids
from dethpc.master.durable.lease import Lease
from dethpc.master.durable.recreate import Recreated, lost_ids, recreate
from dethpc.master.installation import cluster_id, site_of
from dethpc.rundir.files import write_json
from dethpc.rundir.home import Home
from dethpc.state import open_store

_LOG_FILES = ("-wal", "-shm")
"""SQLite finds them by the name of their database."""


def rebuild(
    root: Path, site_file: Path | None = None, progress: Callable[[int, int], None] = lambda done, of: None
) -> tuple[Recreated, Path | None]:
    """Make the database again from the shared file system. Returns what came of it, and where the old database is kept.

    Raises LeaseHeld while a master runs; Refused, OSError and StoreError, and then the old database is as it was.
    """
    os.umask(0o077)
    home = Home(root)
    home.make()
    site = site_of(home, site_file)
    lease = Lease(home.master_file, cluster_id(home))
    lease.take()

    def alive(done: int, of: int) -> None:
        lease.renew()
        progress(done, of)

    try:
        if site.database:
            return _fill(home, site.database, alive), None
        made = _make_beside(home, alive)
        lease.check()
        return made, _put_in_place(home)
    finally:
        lease.release()


def _make_beside(home: Home, progress: Callable[[int, int], None]) -> Recreated:
    new = home.database_in_the_making
    for path in (new, *_log_files(new)):
        path.unlink(missing_ok=True)  # of a rebuild that was killed
    with open_store(new) as store:
        made = recreate(home, store, progress)
    _remember_losses(home, made)
    with open(new, "rb") as file:
        os.fsync(file.fileno())
    return made


def _fill(home: Home, url: str, progress: Callable[[int, int], None]) -> Recreated:
    """A database on a server cannot be renamed: until it is whole, a file says that it is not."""
    with open_store(url) as store:
        with store.read() as connection:
            filled = ids.in_database(connection).experiments
        if filled and not home.rebuilding.exists():
            raise Refused(
                "the database that the site configuration names is not empty; name an empty one, then run det master rebuild again"
            )
        write_json(home.rebuilding, {"at": time.time()})
        made = recreate(home, store, progress)
    _remember_losses(home, made)
    home.rebuilding.unlink()
    return made


def _remember_losses(home: Home, made: Recreated) -> None:
    lost = lost_ids(made)
    write_json(home.losses, {"at": time.time(), "experiments": sorted(lost.experiments), "runs": sorted(lost.runs)})


def _put_in_place(home: Home) -> Path | None:
    """The new database takes the old one's name in one step; returns the name under which the old one is kept, with its log."""
    old, kept = home.database, _name_to_keep(home.database)
    if old.exists():
        _fold_log(old)  # from here on the old database is good without its log files
    there = old.exists()
    for suffix in _LOG_FILES:
        log_file = old.with_name(old.name + suffix)
        if log_file.exists():  # the database could not be read, or is gone
            log_file.rename(kept.with_name(kept.name + suffix))
    if there:
        try:
            os.link(old, kept)
        except OSError:  # a file system without hard links
            shutil.copy2(old, kept)
    home.database_in_the_making.replace(old)
    return kept if there else None


def _name_to_keep(database: Path) -> Path:
    at = int(time.time())
    while (kept := database.with_name(f"{database.stem}.{at}.old{database.suffix}")).exists():
        at += 1
    return kept


def _fold_log(database: Path) -> None:
    """Bring what is in the log into the database file. One that is damaged stays as it is. Raises Refused while it is in use."""
    try:
        with closing(sqlite3.connect(database, timeout=30)) as connection:
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.DatabaseError:
        return
    if busy:
        raise Refused(f"another program uses {database}; end it, then run det master rebuild again")


def _log_files(database: Path) -> list[Path]:
    return [database.with_name(database.name + suffix) for suffix in _LOG_FILES]
