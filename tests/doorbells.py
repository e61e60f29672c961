"""The doorbell as a request uses it."""

from __future__ import annotations

from collections.abc import Sequence

from dethpc.domain.ids import AttemptId
from dethpc.master.http.doorbell import Doorbell


def post(doorbell: Doorbell, attempt: AttemptId, lines: Sequence[str | bytes]) -> tuple[int, str | None]:
    """What a request with these lines of the journal is answered."""
    commit = doorbell.take(attempt, lines)
    if commit is not None:
        commit.result()
    return doorbell.answer(attempt, lines)
