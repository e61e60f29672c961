"""The master: puts the rooms together and lets them run."""

from __future__ import annotations

import getpass
import logging
import os
import socket
import threading

import uvicorn
from fastapi import FastAPI

from dethpc.config.site import SiteConfig
from dethpc.domain.ports import Scheduler
from dethpc.engine.pools import Rules
from dethpc.engine.state import BadNodePolicy
from dethpc.errors import MasterError, Refused
from dethpc.master.durable import ids
from dethpc.master.durable.change_log import ChangeLog
from dethpc.master.durable.harness import build as build_harness
from dethpc.master.durable.lease import Lease
from dethpc.master.durable.ledger import Ledger
from dethpc.master.durable.records import Records
from dethpc.master.experiments.checkpoints import Checkpoints
from dethpc.master.experiments.control import Control
from dethpc.master.experiments.create import Creator
from dethpc.master.experiments.unmanaged import Unmanaged
from dethpc.master.http.app import create_app
from dethpc.master.http.auth import Auth
from dethpc.master.http.doorbell import Doorbell
from dethpc.master.http.service import Services
from dethpc.master.installation import Installation
from dethpc.master.runs.admission import Admission
from dethpc.master.runs.cluster_view import ClusterView
from dethpc.master.runs.holds import Holds
from dethpc.master.runs.live import Cadence, LiveRuns, Pace
from dethpc.master.runs.prepare import JobBuilder
from dethpc.master.runs.reconcile import Reconciler
from dethpc.master.runs.reuse import ReusableJobs
from dethpc.master.runs.script import JobScript
from dethpc.master.runs.waiting import WaitExplainer
from dethpc.rundir.home import Home
from dethpc.searcher.methods import build as build_searcher
from dethpc.state import open_store

log = logging.getLogger(__name__)

LAST_ANSWERS = 1
"""Seconds that requests in progress have when the master is stopped."""

WATCH = 2.0
"""Seconds between two looks at the threads without which a master does nothing."""

LONGEST_END = 30.0
"""Seconds after which a master that was told to end is ended."""


class Daemon:
    """One user's master on one cluster: puts its parts together, and lets them run."""

    def __init__(self, home: Home, site: SiteConfig, scheduler: Scheduler, cluster_id: str, pace: Pace) -> None:
        self._stopped, self._ended = threading.Event(), threading.Event()
        self._broken_by = ""
        self._server: uvicorn.Server | None = None
        self.installation = Installation(home, site, cluster_id, scheduler.kind)
        self.lease = Lease(home.master_file, cluster_id)
        self.lease.take()
        self.store = open_store(site.database or home.database_url)
        self.store.before_commit = self.lease.check
        ids.check(home, self.store)
        self.changes = ChangeLog(home)
        self.changes.catch_up(self.store)
        rules = {name: Rules(pool.scheduler, pool.window) for name, pool in site.pools.items()}
        bad = site.bad_nodes
        bad_nodes = BadNodePolicy(bad.failures, bad.within_hours * 3600, bad.exclude_hours * 3600)
        self.ledger = Ledger(self.store, build_searcher, rules, bad_nodes, self._ledger_broke, self.changes.announce)
        self.ledger.listen(self.changes.append)
        view, cadence, harness = ClusterView(scheduler, pace.fastest_poll), Cadence(pace), build_harness(home.root)
        script = JobScript(site, harness, use_srun=scheduler.kind == "slurm")
        admission = Admission(site, view, script)
        self.builder = JobBuilder(home, site, self.ledger, self.store, view, admission, script, cluster_id, harness)
        holds = Holds(pace)
        waits = WaitExplainer(self.ledger, admission, view, cadence, holds, home)
        runs = LiveRuns(self.ledger)
        runs.listen(waits.on_run_changed)
        short = {name: p.min_job_seconds for name, p in site.pools.items() if p.min_job_seconds is not None}
        self._reconciler = Reconciler(
            self.ledger,
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
            self.stop,
        )
        unmanaged = Unmanaged(self.ledger, home, self.store)
        records = Records(self.store, home)
        self.services = Services(
            installation=self.installation,
            auth=Auth(home.root, getpass.getuser(), self.store, records),
            records=records,
            store=self.store,
            ledger=self.ledger,
            control=Control(self.ledger, self.store, admission),
            creator=Creator(self.installation, self.ledger, self.store, scheduler, admission, self.builder, unmanaged),
            unmanaged=unmanaged,
            checkpoints=Checkpoints(self.ledger, self.store, home),
            cluster=view,
            waits=waits,
            doorbell=Doorbell(self.ledger, self._reconciler.wake),
        )

    def serve(self, host: str, port: int) -> None:
        """Listen and work until a signal or ``stop``. ``port`` 0: any free one. Raises Refused when the port is taken,
        MasterError when it could not go on."""
        try:
            listener = socket.create_server((host, port))
        except OSError as error:
            raise Refused(f"cannot listen on {host} port {port}: {error.strerror}") from error
        self.ledger.start()
        url = f"http://{_reachable(host)}:{listener.getsockname()[1]}"
        self._server = _Server(create_app(self.services))
        self._reconciler.start()
        self.services.unmanaged.start()
        self.lease.publish(url)
        log.info("master of cluster %s listens at %s", self.installation.cluster_id, url)
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        try:
            if not self._stopped.is_set():
                self._server.run(sockets=[listener])
        finally:
            self._reconciler.stop()
            self.services.unmanaged.stop()
            self.ledger.stop()
            self.lease.release()
            self.store.close()
            self._ended.set()
            log.info("master ended")
        if self._broken_by:
            raise MasterError(f"{self._broken_by}; see {self.installation.home.log}")

    def _watch(self) -> None:
        """A master without its ledger or its reconciler would answer and do nothing; one that does not end keeps its successor
        out."""
        while not self._stopped.wait(WATCH):
            if not (self.ledger.alive and self._reconciler.alive):
                dead = "reconciler" if self.ledger.alive else "ledger"
                self._break(f"the thread of the {dead} has died")
        if not self._ended.wait(LONGEST_END):
            log.critical("this master does not end by itself within %g s", LONGEST_END)
            os._exit(1)

    def _ledger_broke(self) -> None:
        self._break("the ledger cannot go on")

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


class _Server(uvicorn.Server):
    """Ends soon whoever is connected: long-polls are answered, and what goes on then is cut off."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        super().__init__(
            uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=LAST_ANSWERS
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.preemptions.end()
        await super().shutdown(sockets)


def _reachable(host: str) -> str:
    """The name under which other machines find a server that listens on ``host``."""
    if host not in ("0.0.0.0", "::", ""):  # noqa: S104
        return host
    name = socket.getfqdn()
    return socket.gethostname() if name.startswith("localhost") else name
