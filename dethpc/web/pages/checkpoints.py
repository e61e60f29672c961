"""The list of checkpoints, and the page of one checkpoint with its files."""

from __future__ import annotations

from typing import Any

from dethpc.client.nouns import checkpoints, experiments
from dethpc.domain.states import CheckpointState
from dethpc.errors import MasterError, NotFound, Refused
from dethpc.web import show
from dethpc.web.asked import Answer, Download, Goto, Page, PageRequest

PAGE = 100

MOST_VERIFIED = 1 << 30
"""Bytes of a checkpoint that the master reads to verify it."""


def one(request: PageRequest) -> Answer:
    checkpoint = checkpoints.get(request.session, request.parts["uuid"])
    return Page("checkpoint.html", {"checkpoint": checkpoint})


def listing(request: PageRequest) -> Answer:
    """Of every experiment, or those in chosen states, the newest first."""
    offset = request.count("offset", 0, 10**8)
    chosen = [state.value for state in CheckpointState if state.value in request.every("state")]
    states = [f"STATE_{state}" for state in chosen]
    answer = checkpoints.listing(request.session, states=states, offset=offset, limit=PAGE)
    shown = {
        "checkpoints": answer["checkpoints"],
        "experiments": _experiments(request, answer["checkpoints"]),
        "total": answer["pagination"]["total"],
        "offset": offset,
        "page": PAGE,
        "states": [state.value for state in CheckpointState],
        "chosen": chosen,
    }
    return Page("checkpoints.html", shown)  # every commit would sort them all again


def _experiments(request: PageRequest, rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Those that checkpoints are of, by id."""
    ids = sorted({row["training"]["experimentId"] for row in rows})
    listed = experiments.listing(request.session, experiments.Filter(ids=ids))["experiments"] if ids else []
    return {experiment["id"]: experiment for experiment in listed}


def archive(request: PageRequest) -> Answer:
    """All its files in one archive, verified while they are read; what fails breaks it off."""
    uuid = checkpoints.get(request.session, request.parts["uuid"])["uuid"]
    return Download(f"{uuid}.tar", checkpoints.archive(request.session, uuid), "application/x-tar")


def act(request: PageRequest) -> Answer:
    """Read it through, or delete it."""
    uuid, action = request.parts["uuid"], request.form.get("action", "")
    if action == "verify":
        return Goto(f"checkpoints/{uuid}", _verified(request, uuid))
    if action == "delete":
        checkpoints.delete(request.session, [uuid])
        return Goto(f"checkpoints/{uuid}", "A task removes its files.")
    raise Refused(f"there is no action {action!r}; there are verify and delete")


def _verified(request: PageRequest, uuid: str) -> str:
    """In words. Reads every byte and changes nothing: a storage that is away for a moment is no reason to forget a checkpoint."""
    files = checkpoints.get(request.session, uuid).get("resources") or {}
    size = sum(int(length) for length in files.values())
    if size > MOST_VERIFIED:
        raise Refused(
            f"it has {show.size(size)}, too much to read it on the master's machine: det checkpoint download {uuid}"
        )
    try:
        for _ in checkpoints.archive(request.session, uuid):
            pass
    except (NotFound, MasterError) as error:
        return f"It cannot be read as it was saved: {error}; the master's log says more."
    return f"All {len(files)} files are there, and are what was saved."
