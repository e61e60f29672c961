"""The route to which a run posts what it has just written to its journal. Not part of Determined's API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from fastapi import Request, Response
from pydantic import ValidationError

from dethpc.domain.ids import AttemptId
from dethpc.errors import Refused
from dethpc.master.http.access import AnyPrincipal, TheDoorbell, may_be_run
from dethpc.master.http.doorbell import Doorbell
from dethpc.master.http.middleware import length
from dethpc.master.http.models import Wire
from dethpc.master.http.router import new_router


class RingRequest(Wire):
    """Journal lines as they are in the attempt's journal, quoted; later releases send the lines themselves."""

    lines: list[str] = []


class Stop(Wire):
    reason: str


class RingAnswer(Wire):
    """``ring_after``: seconds until the attempt should ring again, where it has nothing urgent to say."""

    applied_seq: int
    stop: Stop | None
    ring_after: float


router = new_router(prefix="/api/v1/runs", tags=["runs"])

MOST_RING_BYTES = 4 << 20
"""Of all journal lines that are being taken in: about twenty thousand reports of a few values, which take some ten times as much
memory once they are read. A ring that comes while this is exceeded is answered without its lines: the journal has them, and is read
when there is time. A ring that comes alone is always taken."""


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
    # Every trial that trains asks this all the time: it waits for the commit in no thread, and no model is made of it.
    may_be_run(who, run)
    attempt, state, headers = AttemptId(run, k), request.app.state, request.headers
    size = MOST_RING_BYTES if "transfer-encoding" in headers else length(headers)
    if state.ring_bytes and state.ring_bytes + size > MOST_RING_BYTES:
        return _answer(doorbell, attempt, ())
    state.ring_bytes += size
    try:
        return await _accept_reports(attempt, request, doorbell)
    finally:
        state.ring_bytes -= size


async def _accept_reports(attempt: AttemptId, request: Request, doorbell: Doorbell) -> Response:
    body = await request.body()
    try:
        lines = _lines(body, request.headers.get("content-type", ""))
        much = len(body) > _MUCH or b'"checkpoint"' in body  # whose checkpoint it is, the database is asked
        commit = await asyncio.to_thread(doorbell.take, attempt, lines) if much else doorbell.take(attempt, lines)
    except ValueError as error:
        raise Refused(str(error)) from None
    if commit is not None:
        await asyncio.shield(asyncio.wrap_future(commit))  # who hangs up takes nothing back
    return _answer(doorbell, attempt, lines)


def _answer(doorbell: Doorbell, attempt: AttemptId, lines: Sequence[str | bytes]) -> Response:
    applied, reason = doorbell.answer(attempt, lines)
    stop = None if reason is None else {"reason": reason}
    content = json.dumps({"appliedSeq": applied, "stop": stop, "ringAfter": doorbell.rest()})
    return Response(content, media_type="application/json")


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
