"""Routes of configuration policies."""

from __future__ import annotations

from dethpc.domain.records import ConfigPolicy
from dethpc.errors import NotFound
from dethpc.master.durable.records import Records
from dethpc.master.experiments import config_policies, filing
from dethpc.master.http.access import Owner, TheRecords, Viewer, ViewerSomewhere
from dethpc.master.http.models import MaskedConfig, Wire
from dethpc.master.http.router import new_router


class Policies(Wire):
    config_policies: MaskedConfig


class NewPolicies(Wire):
    """YAML or JSON."""

    config_policies: str = ""


router = new_router(prefix="/api/v1/config-policies", tags=["config policies"])


@router.get("/global/{workload_type}")
def policies(workload_type: str, records: TheRecords, who: ViewerSomewhere) -> Policies:
    return _answer(records, 0, workload_type)


@router.put("/global/{workload_type}")
def put_policies(workload_type: str, request: NewPolicies, records: TheRecords, who: Owner) -> Policies:
    """They bind what is created, continued or moved from now on. Raises ConfigError with every mistake."""
    return _put(records, 0, workload_type, request)


@router.delete("/global/{workload_type}")
def delete_policies(workload_type: str, records: TheRecords, who: Owner) -> dict[str, str]:
    return _delete(records, 0, workload_type)


@router.get("/workspaces/{workspace_id}/{workload_type}")
def workspace_policies(workspace_id: int, workload_type: str, records: TheRecords, who: Viewer) -> Policies:
    return _answer(records, filing.workspace(records, workspace_id).id, workload_type)


@router.put("/workspaces/{workspace_id}/{workload_type}")
def put_workspace_policies(
    workspace_id: int, workload_type: str, request: NewPolicies, records: TheRecords, who: Owner
) -> Policies:
    """See those of the whole master, which lie over these."""
    with records.exclusive():  # the workspace is not deleted meanwhile
        return _put(records, filing.workspace(records, workspace_id).id, workload_type, request)


@router.delete("/workspaces/{workspace_id}/{workload_type}")
def delete_workspace_policies(workspace_id: int, workload_type: str, records: TheRecords, who: Owner) -> dict[str, str]:
    return _delete(records, filing.workspace(records, workspace_id).id, workload_type)


def _workload(workload_type: str) -> str:
    """Raises NotFound."""
    if workload_type.upper() not in config_policies.WORKLOADS:
        raise NotFound(f"there is no kind of work {workload_type!r}, only {' and '.join(config_policies.WORKLOADS)}")
    return workload_type.upper()


def _row(records: Records, workspace_id: int, workload: str) -> ConfigPolicy | None:
    return next(iter(records.find(ConfigPolicy, workspace_id=workspace_id, workload=workload)), None)


def _answer(records: Records, workspace_id: int, workload_type: str) -> Policies:
    row = _row(records, workspace_id, _workload(workload_type))
    content = {"invariant_config": row.invariant_config, "constraints": row.constraints} if row else {}
    return Policies(config_policies={name: section for name, section in content.items() if section})


def _put(records: Records, workspace_id: int, workload_type: str, request: NewPolicies) -> Policies:
    workload = _workload(workload_type)
    with records.exclusive():
        before = _row(records, workspace_id, workload)
        records.put(config_policies.parsed(request.config_policies, workspace_id, workload, before))
    return _answer(records, workspace_id, workload_type)


def _delete(records: Records, workspace_id: int, workload_type: str) -> dict[str, str]:
    if (row := _row(records, workspace_id, _workload(workload_type))) is not None:
        records.drop(row)
    return {}
