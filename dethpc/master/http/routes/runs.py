"""The doorbell: a run tells the master what it has just written to its journal. Ours, beside Determined's API."""

from __future__ import annotations

from fastapi import APIRouter

from dethpc.domain.ids import AttemptId
from dethpc.errors import Refused
from dethpc.master.http.routes.access import AnyPrincipal, TheDoorbell, may_be_run
from dethpc.master.http.wire.task import RingAnswer, RingRequest, Stop

router = APIRouter(prefix="/api/v1/runs", tags=["runs"])


@router.post("/{run}/attempts/{k}/events")
def ring(run: str, k: int, request: RingRequest, doorbell: TheDoorbell, who: AnyPrincipal) -> RingAnswer:
    """Take in journal lines; the answer says how far the journal is applied and whether the attempt should stop."""
    may_be_run(who, run)
    try:
        applied, reason = doorbell.ring(AttemptId(run, k), request.lines)
    except ValueError as error:
        raise Refused(str(error)) from None
    return RingAnswer(applied_seq=applied, stop=None if reason is None else Stop(reason=reason))
