"""The master: puts the rooms together and lets them run."""

from __future__ import annotations

import getpass
import logging
import threading
from functools import partial

from dethpc.config.site import SiteConfig
from dethpc.domain.facts import Run
from dethpc.domain.ports import Scheduler, Snapshot
from dethpc.errors import MasterError
from dethpc.master.durable import contexts, ids
from dethpc.master.durable.at_rest import AtRest
from dethpc.master.durable.change_log import ChangeLog
from dethpc.master.durable.harness import build as build_harness
from dethpc.master.durable.lease import Lease
from dethpc.master.durable.ledger import Ledger
from dethpc.master.durable.records import Records
from dethpc.master.experiments import environments, own_storage
from dethpc.master.experiments.checkpoints import Checkpoints
from dethpc.master.experiments.control import Control
from dethpc.master.experiments.create import Creator
from dethpc.master.experiments.searches import Searches
from dethpc.master.experiments.taking_in import Copies
from dethpc.master.experiments.unmanaged import Unmanaged
from dethpc.master.files.collector import GarbageCollector
from dethpc.master.files.folding import Folding
from dethpc.master.files.retention import LogRetention
from dethpc.master.http.app import create_app
from dethpc.master.http.auth import Auth
from dethpc.master.http.commits import Commits
from dethpc.master.http.doorbell import Doorbell
from dethpc.master.http.munge_login import munge_of
from dethpc.master.http.server import Server
from dethpc.master.http.service import Services
from dethpc.master.http.tls import tls_of
from dethpc.master.http.unix_socket import UnixListener
from dethpc.master.idle import Idle
from dethpc.master.installation import Installation
from dethpc.master.listening import Listening, listen, reachable
from dethpc.master.parts import Parts
from dethpc.master.scheduler_settings import SchedulerSettings
from dethpc.master.submitting.admission import Admission
from dethpc.master.submitting.image_pulls import Images
from dethpc.master.submitting.prepare import JobBuilder
from dethpc.master.submitting.script import JobScript
from dethpc.master.watchdog import Watchdog
from dethpc.master.watching.cluster_view import ClusterView
from dethpc.master.watching.foreign_runs import Elsewhere
from dethpc.master.watching.live_runs import Pace
from dethpc.master.watching.reconcile import Reconciler
from dethpc.master.watching.wait_reasons import WaitExplainer
from dethpc.master.watching.watch import Watch
from dethpc.master.watching.worker_reports import Beside
from dethpc.rundir.home import Home
from dethpc.searcher.methods import build as build_searcher
from dethpc.state import SqlStore, open_store, queries

log = logging.getLogger(__name__)


class Daemon:
    """One user's master on one cluster: puts its parts together, and lets them run."""

    _server: Server | None = None

    def __init__(self, home: Home, site: SiteConfig, scheduler: Scheduler, cluster_id: str, pace: Pace) -> None:
        self._stopped, self._broken_by = threading.Event(), ""
        self.installation = Installation(home, site, cluster_id, scheduler.kind)
        before = SchedulerSettings.read(home)
        self.lease = Lease(home.master_file, cluster_id)
        self.lease.take()
        self.store = self._opened(home, site)
        self.changes = ChangeLog(home, self.lease.check)
        loaded = self._loaded(home)
        rules, broken = self.installation.queue_rules, partial(self._break, "the ledger cannot go on")
        self.ledger = Ledger(
            self.store, build_searcher, rules, self.installation.bad_nodes, broken, self.changes.announce, loaded
        )
        self.ledger.listen(self.changes.append)
        view = ClusterView(scheduler, pace.fastest_poll)
        parts = Parts(home, site, self.store, self.ledger, scheduler, self.lease, view)
        elsewhere = Elsewhere.begin(scheduler, before, home, self.ledger.state)
        harness = build_harness(home.root)
        script = JobScript(site, harness, use_srun=scheduler.kind == "slurm")
        admission = Admission(site, view, script, home.root)
        images = Images(parts, admission)
        self.builder = JobBuilder(parts, admission, script, harness, images)
        watch = Watch.begin(parts, pace, elsewhere)
        records = Records(self.store, home, self.lease.check)
        waits = WaitExplainer(parts, watch, admission)
        watch.runs.listen(waits.on_run_changed)
        beside = Beside(self.ledger, home, self.store)
        unmanaged = Unmanaged(self.ledger, home, self.store)
        self._reconciler = Reconciler(parts, watch, self.builder, beside, waits.on_refused, self.stop)
        self.folding = Folding(self.store, home, self.lease.check, self._live_runs, site.fold_after_hours)
        control = Control(self.ledger, self.store, admission, home)
        place = admission.pool_for_files
        self.collector = GarbageCollector(self.ledger, self.store, home, place, control.delete, self.lease.check)
        self.services = Services(
            installation=self.installation,
            auth=Auth(home.root, getpass.getuser(), self.store, records, munge_of(site.master)),
            records=records,
            store=self.store,
            ledger=self.ledger,
            control=control,
            creator=Creator(self.installation, self.ledger, self.store, scheduler, admission, self.builder, unmanaged),
            copies=Copies(self.installation, self.ledger, self.store),
            searches=Searches(self.ledger, self.store, home),
            unmanaged=unmanaged,
            beside=beside,
            checkpoints=Checkpoints(self.ledger, self.store, home, cluster_id, self.collector.wake),
            cluster=view,
            elsewhere=elsewhere,
            waits=waits,
            images=images,
            doorbell=Doorbell(self.ledger, self.store, watch.runs),
            commits=Commits(self.ledger),
        )

    def _live_runs(self) -> list[Run]:
        return list(self.ledger.state.runs.values())

    def _opened(self, home: Home, site: SiteConfig) -> SqlStore:
        """The database, if it knows all that the files know. Raises Refused, StoreError."""
        store = open_store(site.database or home.database_url)
        store.before_commit = self.lease.check
        ids.check(home, store)
        return store

    def _loaded(self, home: Home) -> Snapshot | None:
        """The rows, and the files caught up with them."""
        loaded = self.changes.catch_up(self.store)
        with self.store.read() as connection:
            environments.sweep(home, queries.queue_ids(connection))
        contexts.sweep(home)
        return loaded

    def serve(self, where: Listening, port: int) -> None:
        """Listen and work until a signal or ``stop``. ``port`` 0: that of the master before this one, or any free
        one. Raises Refused when the port is taken or the certificate cannot be used, MasterError when it could not go on."""
        listeners, installation, name = (
            listen(where.hosts, port, self.lease.port),
            self.installation,
            reachable(where.host),
        )
        installation.listening = where.to_json()
        beside = self._listen_beside()
        tls = self.services.auth.tls = tls_of(installation.home, installation.site.master, where.host, name)
        self.services.auth.pages.name_host(installation.site.master.pages_host)
        self.ledger.start()
        own_storage.move(installation.home, self.ledger, self.store)
        self.services.copies.go_on()
        url = f"{'https' if tls else 'http'}://{f'[{name}]' if ':' in name else name}:{listeners[0].getsockname()[1]}"
        self._server = Server(create_app(self.services), tls)
        self._reconciler.start()
        self.services.unmanaged.start()
        retention = LogRetention(self.store, installation.home, self.lease.check, self.folding)
        retention.start()
        at_rest = AtRest(installation.home)
        at_rest.start()
        self.folding.start()
        self.collector.start()
        self.lease.publish(url, tls.fingerprint if tls else None, installation.site.master.munge, installation.serves)
        log.info("master of cluster %s listens at %s", installation.cluster_id, url)
        watch = partial(Watchdog, self._stopped, self._break, partial(setattr, self.installation, "trouble"))
        reconciler = self._reconciler
        watchdog = watch(
            unwritable=lambda: reconciler.unwritable, ledger=self.ledger, reconciler=reconciler, server=self._server
        )
        watchdog.start()
        hours = installation.site.master.end_after_idle_hours
        after = None if hours is None else hours * 3600
        idle = Idle(after, self._server, self.ledger, self.store, installation.home, self.stop)
        idle.start()
        try:
            if not self._stopped.is_set():
                self._server.run(sockets=[*listeners, *(each.socket for each in beside)])
        finally:
            for each in beside:
                each.remove()
            idle.stop()
            self._reconciler.stop()
            self.folding.stop()
            retention.stop()
            at_rest.stop()
            self.collector.stop()
            self.services.unmanaged.stop()
            self.ledger.stop()
            self.lease.release()
            self.store.close()
            watchdog.ended()
            log.info("master ended")
        if self._broken_by:
            raise MasterError(f"{self._broken_by}; see {self.installation.home.log}")

    def _listen_beside(self) -> list[UnixListener]:
        named = self.installation.site.master.socket
        found = [UnixListener(self.installation.home.root / named)] if named else []
        self.lease.socket = str(found[0].path) if found else None
        return found

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
