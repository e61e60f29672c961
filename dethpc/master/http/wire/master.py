"""The master itself on the wire."""

from __future__ import annotations

from pydantic import BaseModel

from dethpc.master.http.models import Plain, Wire

API_VERSION = "0.38.1"
"""The release of Determined whose API this is; clients compare it with their own version."""


class Info(Wire):
    cluster_id: str
    cluster_name: str
    master_id: str
    version: str = API_VERSION
    has_custom_logo: bool = False
    strict_job_queue_control: bool = False
    rbac_enabled: bool = False
    user_management_enabled: bool = False
    telemetry_enabled: bool = False
    product: str = "PRODUCT_COMMUNITY"
    sso_providers: list[dict[str, str]] = []
    feature_switches: list[str] = []
    branding: str = "determined"
    dethpc_version: str
    started_at: str
    trouble: str  # why it does not get on at present; empty while it does
    notice: str = ""  # of which runs it cannot tell what became, and why; for the owner alone


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


class ClusterMessage(Wire):
    cluster_message: None = None
