"""Routes of the accelerators that an attempt was given, as its program reports them."""

from __future__ import annotations

import time as clock
from typing import Any

from dethpc.domain import records as stored
from dethpc.master.http.access import AnyPrincipal, Reading, TheRecords, attempt_id, may_be_run, may_see_experiment
from dethpc.master.http.models import Given, UserText, Wire
from dethpc.master.http.router import new_router
from dethpc.state import queries
from dethpc.state.queries import records as stored_queries

MOST_ACCELERATORS = 1024  # of one node


class AcceleratorData(Wire):
    allocation_id: str = ""
    container_id: UserText = ""
    node_name: UserText = ""
    task_id: str = ""
    accelerator_type: UserText = ""
    accelerator_uuids: list[UserText] = []
    resource_pool: UserText = ""


class AcceleratorFields(Wire):
    container_id: Given | None = None
    node_name: Given | None = None
    accelerator_type: Given | None = None
    accelerator_uuids: list[Given] = []


class Report(Wire):
    accelerator_data: AcceleratorFields


class Accelerators(Wire):
    accelerator_data: list[AcceleratorData]


router = new_router(prefix="/api/v1", tags=["allocations"])


@router.post("/allocations/{allocation_id}/acceleratorData")
def report(
    allocation_id: str, request: Report, records: TheRecords, connection: Reading, who: AnyPrincipal
) -> dict[str, Any]:
    """Of one node; a later report of a node replaces the earlier one."""
    attempt = attempt_id(allocation_id)
    may_be_run(who, attempt.run)
    run = queries.run(connection, attempt.run)
    queries.attempt(connection, *attempt)
    data = request.accelerator_data
    records.put(
        stored.Accelerators(
            allocation_id=str(attempt),
            node=data.node_name or "",
            task_id=run.task_id,
            experiment_id=run.experiment_id,
            container=data.container_id or "",
            kind=data.accelerator_type or "",
            uuids=data.accelerator_uuids[:MOST_ACCELERATORS],
            pool=run.pool,
            reported_at=clock.time(),
        )
    )
    return {}


@router.get("/tasks/{task_id}/acceleratorData")
def accelerators(task_id: str, connection: Reading, who: AnyPrincipal) -> Accelerators:
    """By attempt and node."""
    may_see_experiment(who, queries.task(connection, task_id).experiment_id)
    return Accelerators(
        accelerator_data=[
            AcceleratorData(
                allocation_id=row.allocation_id,
                container_id=row.container,
                node_name=row.node,
                task_id=row.task_id,
                accelerator_type=row.kind,
                accelerator_uuids=row.uuids,
                resource_pool=row.pool,
            )
            for row in stored_queries.find(connection, stored.Accelerators, task_id=task_id)
        ]
    )
