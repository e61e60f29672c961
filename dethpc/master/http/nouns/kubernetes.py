"""Routes about Kubernetes, with which this cluster has nothing to do: what clients look up is empty."""

from __future__ import annotations

from dethpc.master.experiments import filing
from dethpc.master.http.access import TheRecords, Viewer, ViewerSomewhere
from dethpc.master.http.models import Wire
from dethpc.master.http.router import new_router


class ResourceManagers(Wire):
    resource_managers: list[str] = []


class BoundWorkspaces(Wire):
    workspace_ids: list[int] = []


class Quotas(Wire):
    resource_quotas: dict[str, float] = {}


class Bindings(Wire):
    namespace_bindings: dict[str, str] = {}


router = new_router(prefix="/api/v1", tags=["workspaces"])


@router.get("/k8s-resource-managers")
def resource_managers(who: ViewerSomewhere) -> ResourceManagers:
    return ResourceManagers()


@router.get("/namespace-bindings/workspace-ids-with-default-bindings")
def workspaces_with_default_bindings(who: ViewerSomewhere) -> BoundWorkspaces:
    return BoundWorkspaces()


@router.get("/workspaces/{workspace_id}/get-k8s-resource-quotas")
def resource_quotas(workspace_id: int, records: TheRecords, who: Viewer) -> Quotas:
    filing.workspace(records, workspace_id)
    return Quotas()


@router.get("/workspaces/{workspace_id}/list-namespace-bindings")
def namespace_bindings(workspace_id: int, records: TheRecords, who: Viewer) -> Bindings:
    filing.workspace(records, workspace_id)
    return Bindings()
