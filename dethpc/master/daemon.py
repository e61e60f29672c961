"""The master: puts the rooms together and lets them run."""

from __future__ import annotations

import getpass
import logging
import threading
from functools import partial

from dethpc.config.site import SiteConfig
from dethpc.domain.ports import Scheduler
from dethpc.errors import MasterError
from dethpc.master.durable import ids
from dethpc.master.durable.change_log import ChangeLog
from dethpc.master.durable.harness import build as build_harness
from dethpc.master.durable.lease import Lease
from dethpc.master.durable.ledger import Ledger
from dethpc.master.durable.records import Records
from dethpc.master.experiments import environments
from dethpc.master.experiments.checkpoints import Checkpoints
from dethpc.master.experiments.control import Control
from dethpc.master.experiments.create import Creator
from dethpc.master.experiments.unmanaged import Unmanaged
from dethpc.master.http.app import create_app
from dethpc.master.http.auth import Auth
from dethpc.master.http.doorbell import Doorbell
from dethpc.master.http.munge_login import munge_of
from dethpc.master.http.server import Server, listen, reachable
from dethpc.master.http.service import Services
from dethpc.master.http.tls import tls_of
from dethpc.master.installation import Installation
from dethpc.master.runs.admission import Admission
from dethpc.master.runs.beside import Beside
from dethpc.master.runs.cluster_view import ClusterView
from dethpc.master.runs.holds import Holds
from dethpc.master.runs.live import Cadence, LiveRuns, Pace
from dethpc.master.runs.prepare import JobBuilder
from dethpc.master.runs.reconcile import Reconciler
from dethpc.master.runs.retention import LogRetention
from dethpc.master.runs.reuse import ReusableJobs
from dethpc.master.runs.script import JobScript
from dethpc.master.runs.waiting import WaitExplainer
from dethpc.master.runs.warn import Warner
from dethpc.master.watchdog import Watchdog
from dethpc.rundir.home import Home
from dethpc.searcher.methods import build as build_searcher
from dethpc.state import open_store, queries

log = logging.getLogger(__name__)


class Daemon:
    """One user's master on one cluster: puts its parts together, and lets them run."""

    def __init__(self, home: Home, site: SiteConfig, scheduler: Scheduler, cluster_id: str, pace: Pace) -> None:
        self._stopped, self._broken_by = threading.Event(), ""
        self._server: Server | None = None
        self.installation = Installation(home, site, cluster_id, scheduler.kind)
        self.lease = Lease(home.master_file, cluster_id)
        self.lease.take()
        self.store = open_store(site.database or home.database_url)
        self.store.before_commit = self.lease.check
        ids.check(home, self.store)
        self.changes = ChangeLog(home, self.lease.check)
        self.changes.catch_up(self.store)
        with self.store.read() as connection:
            environments.sweep(home, queries.queue_ids(connection))
        rules, broken = self.installation.queue_rules, partial(self._break, "the ledger cannot go on")
        self.ledger = Ledger(
            self.store, build_searcher, rules, self.installation.bad_nodes, broken, self.changes.announce
        )
        self.ledger.listen(self.changes.append)
        view, cadence, harness = ClusterView(scheduler, pace.fastest_poll), Cadence(pace), build_harness(home.root)
        script = JobScript(site, harness, use_srun=scheduler.kind == "slurm")
        admission = Admission(site, view, script)
        self.builder = JobBuilder(home, site, self.ledger, self.store, view, admission, script, cluster_id, harness)
        holds, runs = Holds(pace), LiveRuns(self.ledger)
        waits = WaitExplainer(self.ledger, admission, view, cadence, holds, home)
        runs.listen(waits.on_run_changed)
        short = {name: p.min_job_seconds for name, p in site.pools.items() if p.min_job_seconds is not None}
        beside, unmanaged = Beside(self.ledger, home, self.store), Unmanaged(self.ledger, home, self.store)
        self._reconciler = Reconciler(
            self.ledger,
            self.store,
            scheduler,
            home,
            self.lease,
            runs,
            cadence,
            view,
            self.builder.prepare,
            ReusableJobs(home, short),
            holds,
            waits.on_refused,
            Warner(self.ledger, home),
            beside,
            self.stop,
        )
        records = Records(self.store, home, self.lease.check)
        self.services = Services(
            installation=self.installation,
            auth=Auth(home.root, getpass.getuser(), self.store, records, munge_of(site.master)),
            records=records,
            store=self.store,
            ledger=self.ledger,
            control=Control(self.ledger, self.store, admission, home),
            creator=Creator(self.installation, self.ledger, self.store, scheduler, admission, self.builder, unmanaged),
            unmanaged=unmanaged,
            beside=beside,
            checkpoints=Checkpoints(self.ledger, self.store, home),
            cluster=view,
            waits=waits,
            doorbell=Doorbell(self.ledger, self._reconciler.wake),
        )

    def serve(self, host: str, port: int) -> None:
        """Listen and work until a signal or ``stop``. ``port`` 0: any free one. Raises Refused when the port is taken
        or the certificate cannot be used, MasterError when it could not go on."""
        listener, installation, name = listen(host, port), self.installation, reachable(host)
        tls = self.services.auth.tls = tls_of(installation.home, installation.site.master, host, name)
        self.ledger.start()
        url = f"{'https' if tls else 'http'}://{name}:{listener.getsockname()[1]}"
        self._server = Server(create_app(self.services), tls)
        self._reconciler.start()
        self.services.unmanaged.start()
        retention = LogRetention(self.store, installation.home, self.lease.check)
        retention.start()
        self.lease.publish(url, tls.fingerprint if tls else None, installation.site.master.munge, installation.serves)
        log.info("master of cluster %s listens at %s", installation.cluster_id, url)
        watch = partial(Watchdog, self._stopped, self._break, partial(setattr, self.installation, "trouble"))
        watchdog = watch(ledger=self.ledger, reconciler=self._reconciler, server=self._server)
        watchdog.start()
        try:
            if not self._stopped.is_set():
                self._server.run(sockets=[listener])
        finally:
            self._reconciler.stop()
            retention.stop()
            self.services.unmanaged.stop()
            self.ledger.stop()
            self.lease.release()
            self.store.close()
            watchdog.ended()
            log.info("master ended")
        if self._broken_by:
            raise MasterError(f"{self._broken_by}; see {self.installation.home.log}")

    def _break(self, why: str) -> None:
        if not self._stopped.is_set():
            self._broken_by = why
            log.critical("%s: this master ends", why)
            self.stop()

    def stop(self) -> None:
        """End soon; safe from any thread and from a signal handler."""
        self._stopped.set()
        if self._server is not None:
            self._server.should_exit = True
