"""The objects that all services of a master share, such as database, ledger and scheduler, and how they are opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dethpc.config.site import SiteConfig
from dethpc.domain.facts import Run
from dethpc.domain.ports import Scheduler
from dethpc.master.durable import contexts, ids
from dethpc.master.durable.change_log import ChangeLog
from dethpc.master.durable.lease import Lease
from dethpc.master.durable.ledger import Ledger
from dethpc.master.experiments import environments
from dethpc.master.installation import Installation
from dethpc.master.watching.cluster_view import ClusterView
from dethpc.rundir.home import Home
from dethpc.searcher.methods import build as build_searcher
from dethpc.state import SqlStore, open_store, queries


@dataclass(frozen=True, slots=True)
class Parts:
    """One of each per master, for use from any thread. Services take this and what is theirs alone."""

    installation: Installation
    store: SqlStore
    ledger: Ledger
    scheduler: Scheduler
    lease: Lease
    cluster: ClusterView

    @property
    def home(self) -> Home:
        return self.installation.home

    @property
    def site(self) -> SiteConfig:
        return self.installation.site

    @property
    def cluster_id(self) -> str:
        return self.installation.cluster_id

    def live_runs(self) -> list[Run]:
        return list(self.ledger.state.runs.values())


def open_parts(
    installation: Installation, scheduler: Scheduler, fastest_poll: float, on_broken: Callable[[], None]
) -> Parts:
    """Take the lease, open the database if it knows all that the files know, and catch up with them. ``on_broken`` is called when
    the ledger cannot go on. Raises LeaseHeld, Refused, StoreError."""
    home = installation.home
    lease = Lease(home.master_file, installation.cluster_id)
    lease.take()
    store = open_store(installation.site.database or home.database_url)
    store.before_commit = lease.check
    ids.check(home, store)
    changes = ChangeLog(home, lease.check)
    loaded = changes.catch_up(store)
    with store.read() as connection:
        environments.sweep(home, queries.queue_ids(connection))
    contexts.sweep(home)
    ledger = Ledger(store, build_searcher, installation.queue_rules, installation.bad_nodes, on_broken, loaded)
    ledger.announce = changes.announce
    ledger.listen(changes.append)
    return Parts(installation, store, ledger, scheduler, lease, ClusterView(scheduler, fastest_poll))
