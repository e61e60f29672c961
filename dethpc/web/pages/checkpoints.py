"""Checkpoints: all of them, and one with its files."""

from __future__ import annotations

from typing import Any

from dethpc.client import checkpoints, experiments
from dethpc.domain.states import CheckpointState
from dethpc.errors import MasterError, NotFound, Refused
from dethpc.web import show
from dethpc.web.asked import Answer, Asked, Download, Goto, Page

PAGE = 100

MOST_VERIFIED = 1 << 30
"""Bytes of a checkpoint that the master reads to verify it."""


def one(asked: Asked) -> Answer:
    found = checkpoints.get(asked.session, asked.parts["uuid"])
    return Page("checkpoint.html", {"checkpoint": found})


def listing(asked: Asked) -> Answer:
    """Of every experiment, or those in chosen states, the newest first."""
    offset = asked.count("offset", 0, 10**8)
    chosen = [state.value for state in CheckpointState if state.value in asked.every("state")]
    states = [f"STATE_{state}" for state in chosen]
    found = checkpoints.listing(asked.session, states=states, offset=offset, limit=PAGE)
    shown = {
        "checkpoints": found["checkpoints"],
        "experiments": _experiments(asked, found["checkpoints"]),
        "total": found["pagination"]["total"],
        "offset": offset,
        "page": PAGE,
        "states": [state.value for state in CheckpointState],
        "chosen": chosen,
    }
    return Page("checkpoints.html", shown)  # every commit would sort them all again


def _experiments(asked: Asked, found: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Those that checkpoints are of, by id."""
    ids = sorted({each["training"]["experimentId"] for each in found})
    listed = experiments.listing(asked.session, ids=ids)["experiments"] if ids else []
    return {each["id"]: each for each in listed}


def archive(asked: Asked) -> Answer:
    """All its files in one archive, verified while they are read; what fails breaks it off."""
    uuid = checkpoints.get(asked.session, asked.parts["uuid"])["uuid"]
    return Download(f"{uuid}.tar", checkpoints.archive(asked.session, uuid), "application/x-tar")


def act(asked: Asked) -> Answer:
    """Read it through, or delete it."""
    uuid, action = asked.parts["uuid"], asked.form.get("action", "")
    if action == "verify":
        return Goto(f"checkpoints/{uuid}", _verified(asked, uuid))
    if action == "delete":
        checkpoints.delete(asked.session, [uuid])
        return Goto(f"checkpoints/{uuid}", "A task removes its files.")
    raise Refused(f"there is no action {action!r}; there are verify and delete")


def _verified(asked: Asked, uuid: str) -> str:
    """In words. Reads every byte and changes nothing: a storage that is away for a moment is no reason to forget a checkpoint."""
    files = checkpoints.get(asked.session, uuid).get("resources") or {}
    size = sum(int(each) for each in files.values())
    if size > MOST_VERIFIED:
        raise Refused(
            f"it has {show.size(size)}, too much to read it on the master's machine: det checkpoint download {uuid}"
        )
    try:
        for _ in checkpoints.archive(asked.session, uuid):
            pass
    except (NotFound, MasterError) as error:
        return f"It cannot be read as it was saved: {error}; the master's log says more."
    return f"All {len(files)} files are there, and are what was saved."
