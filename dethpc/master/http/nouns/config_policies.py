"""Routes of configuration policies."""

from __future__ import annotations

from dethpc.domain.records import ConfigPolicy
from dethpc.errors import NotFound, NotSupportedYet
from dethpc.master.durable.records import Records
from dethpc.master.experiments import config_policies, filing
from dethpc.master.http.access import Owner, TheRecords, Viewer
from dethpc.master.http.models import MaskedConfig, Wire
from dethpc.master.http.router import new_router


class Policies(Wire):
    config_policies: MaskedConfig


class NewPolicies(Wire):
    """YAML or JSON."""

    config_policies: str = ""


router = new_router(prefix="/api/v1/config-policies", tags=["config policies"])


@router.get("/global/{workload_type}")
def policies(workload_type: str, records: TheRecords, who: Viewer) -> Policies:
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
    return _put(records, filing.workspace(records, workspace_id).id, workload_type, request)


@router.delete("/workspaces/{workspace_id}/{workload_type}")
def delete_workspace_policies(workspace_id: int, workload_type: str, records: TheRecords, who: Owner) -> dict[str, str]:
    return _delete(records, filing.workspace(records, workspace_id).id, workload_type)


def _check(workload_type: str) -> None:
    """Raises NotSupportedYet, NotFound."""
    if workload_type.upper() == "NTSC":
        raise NotSupportedYet("there are no notebooks, shells and commands yet, and so no policies for them")
    if workload_type.upper() != config_policies.EXPERIMENTS:
        raise NotFound(f"there is no kind of work {workload_type!r}, only {config_policies.EXPERIMENTS}")


def _row(records: Records, workspace_id: int) -> ConfigPolicy | None:
    rows = records.find(ConfigPolicy, workspace_id=workspace_id, workload=config_policies.EXPERIMENTS)
    return next(iter(rows), None)


def _answer(records: Records, workspace_id: int, workload_type: str) -> Policies:
    _check(workload_type)
    row = _row(records, workspace_id)
    content = {"invariant_config": row.invariant_config, "constraints": row.constraints} if row else {}
    return Policies(config_policies={name: section for name, section in content.items() if section})


def _put(records: Records, workspace_id: int, workload_type: str, request: NewPolicies) -> Policies:
    _check(workload_type)
    with records.exclusive():
        before = _row(records, workspace_id)
        records.put(config_policies.parsed(request.config_policies, workspace_id, before))
    return _answer(records, workspace_id, workload_type)


def _delete(records: Records, workspace_id: int, workload_type: str) -> dict[str, str]:
    _check(workload_type)
    if (row := _row(records, workspace_id)) is not None:
        records.drop(row)
    return {}
