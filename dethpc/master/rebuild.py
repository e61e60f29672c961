"""The database made again from the shared file system."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dethpc.errors import Refused
from dethpc.master.durable import change_log
from dethpc.master.durable.lease import Lease
from dethpc.master.installation import cluster_id, site_of
from dethpc.rundir.home import Home
from dethpc.state import open_store


def rebuild(root: Path, site_file: Path | None = None) -> int:
    """Make the database again from the shared file system; the old one is kept beside it. Returns the number of experiments.

    Raises LeaseHeld while a master runs.
    """
    os.umask(0o077)
    home = Home(root)
    home.make()
    site = site_of(home, site_file)
    if site.database:
        raise Refused("the database is named in the site configuration; point it at an empty one and start the master")
    lease = Lease(home.master_file, cluster_id(home))
    lease.take()
    try:
        for path in home.root.glob(f"{home.database.name}*"):
            path.rename(path.with_name(f"{path.name}.{int(time.time())}.old"))
        store = open_store(home.database_url)
        try:
            return change_log.rebuild(home, store)
        finally:
            store.close()
    finally:
        lease.release()
