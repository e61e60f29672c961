"""What stands before every route, and what any of them may refuse."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from dethpc.master.http.parameters import ids_that_can_be, only_known_parameters

_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": description}
    for status, description in {
        400: "The request is malformed, out of range, or not possible in the present state.",
        401: "No valid token.",
        403: "The token is valid, and not for this.",
        404: "There is no such thing.",
        409: "It meets another change.",
        413: "The body is too large.",
        429: "Too many at a time; try again later.",
        501: "Not supported.",
        503: "The scheduler, the database or the file system gives no answer.",
    }.items()
}
"""Answers that any route may give. Their bodies have one form: ``{"error": {"code", "reason", "error"}}``."""

# The middleware checks the token: HTTPBearer puts it into /docs.
GATE = (Depends(HTTPBearer(auto_error=False)), Depends(ids_that_can_be), Depends(only_known_parameters))


def _operation(route: APIRoute) -> str:
    return f"{route.tags[0] if route.tags else 'master'}_{route.name}"


class Gated(APIRouter):
    """As FastAPI's; before each of its routes stands what no route has to ask itself. The application has the routes themselves:
    to include the router would make each of them once more."""

    def __init__(self, **options: Any) -> None:
        super().__init__(dependencies=GATE, responses=_REFUSALS, generate_unique_id_function=_operation, **options)
