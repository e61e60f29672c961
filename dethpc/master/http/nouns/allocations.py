"""Signals to attempts (Determined's allocations)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request

from dethpc.master.http.access import AnyPrincipal, Reading, attempt_id, may_be_run
from dethpc.master.http.preemptions import Preemptions
from dethpc.master.http.router import new_router
from dethpc.master.http.wire.task import Allocation, AllocationAnswer, Preemption
from dethpc.state import queries

router = new_router(prefix="/api/v1/allocations", tags=["allocations"])

LONGEST = 60.0
"""Seconds: proxies cut connections that are silent for longer."""


@router.get("/{allocation_id}/signals/preemption")
async def preemption(
    allocation_id: str,
    request: Request,
    who: AnyPrincipal,
    timeout: Annotated[float, Query(alias="timeoutSeconds")] = -1,
) -> Preemption:
    """Whether the attempt should checkpoint and end; waits for a yes as long as asked (a negative time: as long as possible)."""
    attempt = attempt_id(allocation_id)
    may_be_run(who, attempt.run)
    preemptions: Preemptions = request.app.state.preemptions
    return Preemption(preempt=await preemptions.wait(attempt, LONGEST if timeout < 0 else min(timeout, LONGEST)))


@router.post("/{allocation_id}/signals/ack_preemption")
def acknowledge(allocation_id: str, who: AnyPrincipal) -> dict[str, Any]:
    """The attempt's user code knows that it should stop. The journal says so as well; nothing depends on the call."""
    may_be_run(who, attempt_id(allocation_id).run)
    return {}


@router.get("/{allocation_id}")
def get_allocation(allocation_id: str, connection: Reading, who: AnyPrincipal) -> AllocationAnswer:
    attempt = attempt_id(allocation_id)
    may_be_run(who, attempt.run)
    run = queries.run(connection, attempt.run)
    return AllocationAnswer(allocation=Allocation.of(queries.attempt(connection, *attempt), run))
