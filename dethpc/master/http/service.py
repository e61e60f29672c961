"""The parts of the master that routes work with. ``access`` gives each route those that it needs."""

from __future__ import annotations

import getpass
from dataclasses import dataclass

from dethpc.master.durable.ledger import Ledger
from dethpc.master.durable.records import Records
from dethpc.master.experiments.archives.importing import Copies
from dethpc.master.experiments.checkpoints import Checkpoints
from dethpc.master.experiments.control import Control
from dethpc.master.experiments.create import Creator
from dethpc.master.experiments.filing import ensure_uncategorized
from dethpc.master.experiments.searches import Searches
from dethpc.master.experiments.unmanaged import Unmanaged
from dethpc.master.files.collector import GarbageCollector
from dethpc.master.files.folding import Folding
from dethpc.master.files.retention import LogRetention
from dethpc.master.http.auth import Auth
from dethpc.master.http.commits import Commits
from dethpc.master.http.doorbell import Doorbell
from dethpc.master.installation import Installation
from dethpc.master.parts import Parts
from dethpc.master.proxy.origins import Origins
from dethpc.master.proxy.relays import Relays
from dethpc.master.submitting.image_pulls import Images
from dethpc.master.submitting.prepare import JobBuilder
from dethpc.master.tasks.launching import Launcher
from dethpc.master.watching.cluster_view import ClusterView
from dethpc.master.watching.foreign_runs import ForeignRuns
from dethpc.master.watching.wait_reasons import WaitReasons
from dethpc.master.watching.watch import Watch
from dethpc.master.watching.worker_reports import WorkerReports
from dethpc.master.webhooks.service import Webhooks
from dethpc.state.store import SqlStore


@dataclass(frozen=True, slots=True)
class Services:
    """Every method of each may block and may be called from any thread."""

    installation: Installation
    auth: Auth
    records: Records
    store: SqlStore
    ledger: Ledger
    control: Control
    creator: Creator
    launcher: Launcher
    copies: Copies
    searches: Searches
    unmanaged: Unmanaged
    worker_reports: WorkerReports
    checkpoints: Checkpoints
    retention: LogRetention
    cluster: ClusterView
    foreign_runs: ForeignRuns
    waits: WaitReasons
    images: Images
    doorbell: Doorbell
    commits: Commits
    webhooks: Webhooks
    relays: Relays
    origins: Origins


def services_of(
    parts: Parts,
    watch: Watch,
    builder: JobBuilder,
    waits: WaitReasons,
    control: Control,
    collector: GarbageCollector,
) -> Services:
    """What the routes of a master work with. Raises StoreError."""
    records = Records(parts.store, parts.home, parts.lease.check)
    auth = Auth(parts.home.root, getpass.getuser(), parts.store, records)
    ensure_uncategorized(records, auth.user)
    unmanaged = Unmanaged(parts)
    folding = Folding(parts.store, parts.home, parts.lease.check, parts.live_runs, parts.site.fold_after_hours)
    return Services(
        installation=parts.installation,
        auth=auth,
        records=records,
        store=parts.store,
        ledger=parts.ledger,
        control=control,
        creator=Creator(parts, builder, unmanaged),
        launcher=Launcher(parts, builder),
        copies=Copies(parts),
        searches=Searches(parts),
        unmanaged=unmanaged,
        worker_reports=WorkerReports(parts),
        checkpoints=Checkpoints(parts, collector.wake),
        retention=LogRetention(parts.store, parts.home, parts.lease.check, folding, parts.site.remove_tasks_after_days),
        cluster=parts.cluster,
        foreign_runs=watch.foreign,
        waits=waits,
        images=builder.images,
        doorbell=Doorbell(parts.ledger, parts.store, watch.runs),
        commits=Commits(parts.ledger),
        webhooks=Webhooks(parts, records),
        relays=Relays(parts),
        origins=Origins(auth, records, parts.site.master.proxy.origins),
    )
