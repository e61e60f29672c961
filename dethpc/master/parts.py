"""What the services of a master share."""

from __future__ import annotations

from dataclasses import dataclass

from dethpc.config.site import SiteConfig
from dethpc.domain.ports import Scheduler
from dethpc.master.durable.lease import Lease
from dethpc.master.durable.ledger import Ledger
from dethpc.master.watching.cluster_view import ClusterView
from dethpc.rundir.home import Home
from dethpc.state import SqlStore


@dataclass(frozen=True, slots=True)
class Parts:
    """One of each per master, for use from any thread. Services take this and what is theirs alone."""

    home: Home
    site: SiteConfig
    store: SqlStore
    ledger: Ledger
    scheduler: Scheduler
    lease: Lease
    cluster: ClusterView

    @property
    def cluster_id(self) -> str:
        return self.lease.cluster_id
