"""The master process: builds its services, starts them in order and stops them in reverse."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from dethpc.config.site import SiteConfig
from dethpc.domain.ports import Scheduler
from dethpc.errors import MasterError
from dethpc.master.durable.at_rest import AtRest
from dethpc.master.durable.harness import build as build_harness
from dethpc.master.experiments import own_storage
from dethpc.master.experiments.control import Control
from dethpc.master.files.collector import GarbageCollector
from dethpc.master.http.app import create_app
from dethpc.master.http.server import Server
from dethpc.master.http.service import services_of
from dethpc.master.http.tls import tls_of
from dethpc.master.http.unix_socket import OwnerSocket, UnixListener
from dethpc.master.idle import Idle
from dethpc.master.installation import Installation
from dethpc.master.listening import Listening, listen, reachable, url_of
from dethpc.master.parts import open_parts
from dethpc.master.scheduler_settings import SchedulerSettings
from dethpc.master.submitting.prepare import JobBuilder
from dethpc.master.watchdog import Watchdog, Watched
from dethpc.master.watching.foreign_runs import ForeignRuns
from dethpc.master.watching.live_runs import Pace
from dethpc.master.watching.reconcile import Reconciler
from dethpc.master.watching.wait_reasons import WaitReasons
from dethpc.master.watching.watch import Watch
from dethpc.rundir.home import Home

log = logging.getLogger(__name__)


class Service(Protocol):
    """What works until the master ends."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Daemon:
    """One user's master on one cluster: services over the same parts, started in order and stopped in reverse."""

    _server: Server | None = None

    def __init__(self, home: Home, site: SiteConfig, scheduler: Scheduler, cluster_id: str, pace: Pace) -> None:
        self._stopped = threading.Event()
        self._broken_by = ""
        self.installation = Installation(home, site, cluster_id, scheduler.kind)
        before = SchedulerSettings.read(home)
        parts = self.parts = open_parts(self.installation, scheduler, pace.fastest_poll, self._ledger_broke)
        self.lease = parts.lease
        self.store = parts.store
        self.ledger = parts.ledger
        watch = Watch.begin(parts, pace, ForeignRuns.begin(scheduler, before, home, parts.ledger.state))
        self.builder = JobBuilder(parts, build_harness(home.root))
        waits = WaitReasons(parts, watch, self.builder.admission)
        watch.runs.listen(waits.on_run_changed)
        control = Control(parts, self.builder.admission)
        self.collector = GarbageCollector(parts, control)
        self.services = services_of(parts, watch, self.builder, waits, control, self.collector)
        self._reconciler = Reconciler(
            parts, watch, self.builder, self.services.worker_reports, waits.on_refused, self.stop
        )
        self.folding = self.services.retention.folding
        self._background: list[Service] = [
            self._reconciler,
            self.services.unmanaged,
            self.services.retention,
            AtRest(home),
            self.folding,
            self.collector,
            self.services.webhooks,
        ]

    def serve(self, where: Listening, port: int) -> None:
        """Listen and work until a signal or ``stop``. ``port`` 0: that of the master before this one, or any free
        one. Raises Refused when the port is taken or the certificate cannot be used, MasterError when it could not go on."""
        home, site, name = self.parts.home, self.parts.site.master, reachable(where.host)
        listeners = listen(where.hosts, port, self.lease.port)
        self.installation.listening = where.to_json()
        unix = self._listen_on_socket()
        tls = self.services.auth.tls = tls_of(home, site, where.host, name)
        self.services.auth.pages.name_host(site.pages_host)
        self.ledger.start()
        own_storage.move(home, self.ledger, self.store)
        self.services.copies.go_on()
        owner = OwnerSocket(self.lease)
        self.lease.build, self.lease.hosts = self.installation.build, where.hosts
        self._server = Server(create_app(self.services), tls, owner)
        hours = site.end_after_idle_hours
        idle = Idle(None if hours is None else hours * 3600, self._server, self.parts, self.stop)
        for service in self._background:
            service.start()
        url = url_of(name, listeners[0].getsockname()[1], tls=tls is not None)
        self.lease.publish(url, tls.fingerprint if tls else None, self.installation.serves)
        log.info("master of cluster %s listens at %s", self.parts.cluster_id, url)
        watchdog = self._watchdog(self._server)
        watchdog.start()
        idle.start()
        try:
            if not self._stopped.is_set():
                self._server.run(sockets=[*listeners, *(listener.socket for listener in unix)])
        finally:
            owner.remove()
            for listener in unix:
                listener.remove()
            for service in [idle, *reversed(self._background), self.ledger]:
                service.stop()
            self.lease.release()
            self.store.close()
            watchdog.ended()
            log.info("master ended")
        if self._broken_by:
            raise MasterError(f"{self._broken_by}; see {home.log}")

    def _listen_on_socket(self) -> list[UnixListener]:
        path = self.parts.site.master.socket
        listeners = [UnixListener(self.parts.home.root / path)] if path else []
        self.lease.socket = str(listeners[0].path) if listeners else None
        return listeners

    def _watchdog(self, server: Server) -> Watchdog:
        threads: dict[str, Watched] = {"ledger": self.ledger, "reconciler": self._reconciler, "server": server}
        return Watchdog(self._stopped, self._break, self._tell, lambda: self._reconciler.unwritable, **threads)

    def _tell(self, trouble: str) -> None:
        self.installation.trouble = trouble

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
