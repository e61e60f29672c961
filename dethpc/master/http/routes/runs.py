"""The doorbell: a run tells the master what it has just written to its journal. Ours, beside Determined's API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from fastapi import Request, Response
from pydantic import ValidationError

from dethpc.domain.ids import AttemptId
from dethpc.errors import Refused
from dethpc.master.http.auth import Principal
from dethpc.master.http.bodies import length
from dethpc.master.http.doorbell import Doorbell
from dethpc.master.http.room import PATIENCE
from dethpc.master.http.routes.access import AnyPrincipal, TheDoorbell, may_be_run
from dethpc.master.http.routes.router import Router
from dethpc.master.http.wire.task import RingAnswer, RingRequest

router = Router(prefix="/api/v1/runs", tags=["runs"])

_MUCH = 32 << 10
"""Bytes of lines that take so long to read that the server would notice."""

_BODY: dict[str, Any] = {
    "requestBody": {
        "content": {
            "text/plain": {"schema": {"type": "string", "description": "Lines of the attempt's journal."}},
            "application/json": {"schema": RingRequest.model_json_schema()},
        }
    }
}


@router.post("/{run}/attempts/{k}/events", response_model=RingAnswer, openapi_extra=_BODY)
async def ring(run: str, k: int, request: Request, doorbell: TheDoorbell, who: AnyPrincipal) -> Response:
    """Take in journal lines; the answer says how far the journal is applied and whether the attempt should stop."""
    return Response(await rung(run, k, request, doorbell, who), media_type="application/json")


async def rung(run: str, k: int, request: Request, doorbell: Doorbell, who: Principal) -> bytes:
    """Every trial that trains asks this all the time: it waits for the commit in no thread, and no model is made of it.

    While there is no room for its lines, it hears how far the journal is applied: the lines are in there, too, and are read from
    there when there is time. What no disk has taken it sends again.
    """
    may_be_run(who, run)
    attempt, room, size = AttemptId(run, k), request.app.state.room, length(request)
    if not await room.enter(size, PATIENCE):
        return _told(doorbell, attempt, ())
    try:
        return await _taken(attempt, request, doorbell)
    finally:
        room.leave(size)


async def _taken(attempt: AttemptId, request: Request, doorbell: Doorbell) -> bytes:
    body = await request.body()
    try:
        lines = _lines(body, request.headers.get("content-type", ""))
        much = len(body) > _MUCH or b'"checkpoint"' in body  # whose checkpoint it is, the database is asked
        taken = await asyncio.to_thread(doorbell.take, attempt, lines) if much else doorbell.take(attempt, lines)
    except ValueError as error:
        raise Refused(str(error)) from None
    if taken is not None:
        await asyncio.shield(asyncio.wrap_future(taken))  # who hangs up takes nothing back
    return _told(doorbell, attempt, lines)


def _told(doorbell: Doorbell, attempt: AttemptId, lines: Sequence[str | bytes]) -> bytes:
    applied, reason = doorbell.answer(attempt, lines)
    stop = None if reason is None else {"reason": reason}
    return json.dumps({"appliedSeq": applied, "stop": stop, "ringAfter": doorbell.rest()}).encode()


def _lines(body: bytes, content_type: str) -> Sequence[str | bytes]:
    """Raises ValueError."""
    if content_type.startswith("text/plain"):
        return body.splitlines()
    try:
        return RingRequest.model_validate_json(body or b"{}").lines
    except ValidationError as error:
        raise ValueError(
            f"lines of a journal are text/plain, or in JSON a list of texts ({error.error_count()} faults)"
        ) from None
