"""Routes of the master itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from dethpc.domain.roles import Role
from dethpc.domain.secrets import masked
from dethpc.errors import NotSupportedYet, RunOver, StoreUnavailable, Unauthorized
from dethpc.master import own_log
from dethpc.master.http import streams
from dethpc.master.http.access import (
    Owner,
    TheCreator,
    TheForeignRuns,
    TheInstallation,
    TheServices,
    TheWebhooks,
)
from dethpc.master.http.auth import Auth, Principal
from dethpc.master.http.models import Plain, Wire, time
from dethpc.master.http.nouns import cluster_messages
from dethpc.master.http.nouns.cluster_messages import ClusterMessage
from dethpc.master.http.nouns.logs import MasterLogAnswer, MasterLogEntry
from dethpc.master.http.router import new_router
from dethpc.master.watching.foreign_runs import ForeignRuns

API_VERSION = "0.38.1"
"""The release of Determined whose API this is; clients compare it with their own version."""


class Info(Wire):
    cluster_id: str
    cluster_name: str
    master_id: str
    version: str = API_VERSION
    has_custom_logo: bool = False
    strict_job_queue_control: bool = False
    rbac_enabled: bool = True
    user_management_enabled: bool = True
    telemetry_enabled: bool = False
    product: str = "PRODUCT_COMMUNITY"
    sso_providers: list[dict[str, str]] = []
    feature_switches: list[str] = []
    branding: str = "determined"
    dethpc_version: str
    started_at: str
    trouble: str  # why it does not get on at present; empty while it does
    notice: str = ""  # of which runs it cannot tell what became, and why; for the owner alone
    cluster_message: ClusterMessage | None = None  # that counts now; for who is logged in


class RunElsewhere(Wire):
    """A run of which nothing can be learned: ``scheduler``, in words, has its job."""

    run_id: str
    job_id: str
    scheduler: str


class TakeOver(Wire):
    runs: list[RunElsewhere]


class ShortInfo(BaseModel):
    """``GET /info``, whose names are not in camelCase."""

    cluster_id: str
    cluster_name: str
    master_id: str
    version: str = API_VERSION
    dethpc_version: str


class ManagerHealth(BaseModel):
    cluster_name: str
    status: str


class Health(BaseModel):
    """``GET /health``, whose names are not in camelCase. Each status is "up" or "down"."""

    status: str
    database: str
    resource_managers: list[ManagerHealth]


class Config(Wire):
    config: Plain


class Telemetry(Wire):
    enabled: bool = False
    segment_key: str = ""


router = new_router(tags=["master"])


@router.get("/info")
def short_info(installation: TheInstallation) -> ShortInfo:
    return ShortInfo(
        cluster_id=installation.cluster_id,
        cluster_name=installation.cluster_name,
        master_id=installation.cluster_id,
        dethpc_version=installation.version,
    )


@router.get("/health", responses={503: {"model": Health}})
def health(installation: TheInstallation, response: Response) -> Health:
    """503 while the master does not get on; ``GET /api/v1/master`` says why. It asks nobody, for strangers may ask it."""
    status = "down" if installation.trouble else "up"
    response.status_code = 503 if installation.trouble else 200
    manager = ManagerHealth(cluster_name=installation.cluster_name, status=status)
    return Health(status=status, database=status, resource_managers=[manager])


@router.get("/api/v1/master")
def info(services: TheServices, request: Request) -> Info:
    """Anybody may ask; what concerns runs and the cluster is for the owner."""
    installation, user = services.installation, _user(services.auth, request)
    notices: Sequence[str] = ()
    if user is not None and user.role is Role.ADMIN:
        notices = services.foreign_runs.notice, services.cluster.notice, installation.replaced
    message = cluster_messages.current(services.records) if user is not None else None
    return Info(
        cluster_id=installation.cluster_id,
        cluster_name=installation.cluster_name,
        master_id=installation.cluster_id,
        dethpc_version=installation.version,
        started_at=time(installation.started_at),
        trouble=installation.trouble,
        notice="; ".join(filter(None, notices)),
        cluster_message=ClusterMessage.of(message) if message is not None else None,
    )


def _user(auth: Auth, request: Request) -> Principal | None:
    """Who is logged in; None: nobody, a run, or nobody can tell."""
    try:
        principal = auth.principal(request.state.token)
    except (Unauthorized, RunOver, StoreUnavailable):
        return None
    return None if principal.is_run else principal


@router.get("/api/v1/master/take-over")
def runs_elsewhere(foreign_runs: TheForeignRuns, who: Owner) -> TakeOver:
    """The runs of which nothing can be learned, because another scheduler has their jobs, or because this one gives no answer."""
    return _listed(foreign_runs)


@router.post("/api/v1/master/take-over")
def take_over(foreign_runs: TheForeignRuns, who: Owner) -> TakeOver:
    """Count these runs as over: their trials start again from their last checkpoints. If one still runs, it trains twice."""
    listed = _listed(foreign_runs)
    foreign_runs.take_over()
    return listed


def _listed(foreign_runs: ForeignRuns) -> TakeOver:
    return TakeOver(
        runs=[RunElsewhere(run_id=run, job_id=job, scheduler=where) for run, job, where in foreign_runs.runs]
    )


@router.get("/api/v1/master/config")
def config(installation: TheInstallation, creator: TheCreator, webhooks: TheWebhooks, who: Owner) -> Config:
    """What counts, secrets left out; but receivers of webhooks need the key with which these are signed."""
    site = installation.site
    pools = {name: pool.model_dump(mode="json", exclude_defaults=True) for name, pool in site.pools.items()}
    shown = {
        "cluster_name": installation.cluster_name,
        "cluster_id": installation.cluster_id,
        "home": str(installation.home.root),
        "site_file": installation.site_file,
        "scheduler": installation.scheduler,
        "listening": installation.listening,
        # What scripts index: Determined's word for a cluster that is no other scheduler's is agent.
        "resource_manager": {"type": "slurm" if installation.scheduler == "slurm" else "agent"},
        "feature_switches": [],
        **creator.defaults(),
        "pools": pools,
    }
    signing = {"signing_key": webhooks.signing_key(), "base_url": webhooks.base_url}
    return Config(config={**masked(shown), "webhooks": signing})


@router.patch("/api/v1/master/config")
def change_config(who: Owner) -> None:
    raise NotSupportedYet("changing the master's configuration while it runs is not supported; edit site.yaml")


@router.get("/api/v1/master/telemetry")
def telemetry() -> Telemetry:
    """None is ever sent."""
    return Telemetry()


@router.get("/api/v1/master/logs")
def master_logs(
    installation: TheInstallation, who: Owner, offset: int = 0, limit: int = 0, follow: bool = False
) -> StreamingResponse:
    """Lines of the master's log after the first ``offset``; a negative offset: the last that many."""

    def encoded(entries: list[own_log.Entry]) -> bytes:
        return b"".join(
            streams.line(
                MasterLogAnswer(
                    log_entry=MasterLogEntry(
                        id=entry.id, message=entry.message, timestamp=entry.timestamp, level=f"LOG_LEVEL_{entry.level}"
                    )
                )
            )
            for entry in entries
        )

    async def lines() -> AsyncIterator[bytes]:
        entries, count, end = await asyncio.to_thread(own_log.read, installation.home.log, offset, limit)
        yield encoded(entries)
        while follow:
            await asyncio.sleep(streams.PAUSE)
            entries, count, end = await asyncio.to_thread(own_log.read_after, installation.home.log, count, end)
            yield encoded(entries)

    return streams.Stream(lines())


@router.get("/", include_in_schema=False)
def root(installation: TheInstallation) -> dict[str, Any]:
    """Until there is a WebUI."""
    return {"dethpc": installation.version, "api": "/docs"}
