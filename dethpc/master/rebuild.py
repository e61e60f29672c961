"""``det master rebuild``: rebuilds the database from the shared file system, beside the old one, and replaces that when complete.

A rebuild that is killed leaves the old database unchanged; the next one starts again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from dethpc.master.durable.lease import Lease
from dethpc.master.durable.recreate import Recreated, lost_ids, recreate
from dethpc.master.installation import cluster_id, site_of
from dethpc.rundir.files import write_json
from dethpc.rundir.home import Home
from dethpc.state import beside, open_store


def rebuild(
    root: Path, site_file: Path | None = None, progress: Callable[[int, int], None] = lambda done, of: None
) -> tuple[Recreated, str | None]:
    """Make the database again from the shared file system. Returns what came of it, and where the old database is kept.

    Raises LeaseHeld while a master runs; Refused, OSError and StoreError, and then the old database is as it was.
    """
    home = Home(root)
    home.make()
    site = site_of(home, site_file)
    lease = Lease(home.master_file, cluster_id(home))
    lease.take()

    def alive(done: int, of: int) -> None:
        lease.renew()
        progress(done, of)

    try:
        new = beside(site.database or home.database_url)
        with open_store(new.url) as store:
            recreated = recreate(home, store, alive)
        lost = lost_ids(recreated)
        write_json(home.losses, {"at": time.time(), "experiments": sorted(lost.experiments), "runs": sorted(lost.runs)})
        lease.check()
        return recreated, new.take_place()
    finally:
        lease.release()
