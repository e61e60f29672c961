"""Where an attempt goes on: the last checkpoint that earlier attempts of its run left, else what the master knew."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional

from dethpc.errors import RunDirError
from dethpc.rundir import journal
from dethpc.rundir.files import read_json
from dethpc.rundir.layout import RunDir
from dethpc.rundir.spec import Spec


class Resume(NamedTuple):
    """``prior`` maps each earlier attempt to the number of its last event that counts: what it writes later is void."""

    checkpoint: Optional[str]
    steps: int
    prior: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return {"resumed_from": self.checkpoint, "resumed_steps": self.steps, "prior": self.prior}

    @classmethod
    def from_json(cls, obj: dict[str, Any]) -> Resume:
        return cls(obj["resumed_from"], obj["resumed_steps"], obj["prior"])


def find(run: RunDir, k: int, spec: Spec) -> Resume:
    """Read the journals of the attempts before ``k``. Raises: OSError."""
    earlier = [j for j in run.attempts() if j < k]
    bounds = _bounds(run, earlier)
    prior: dict[str, int] = {}
    checkpoints: list[journal.Event] = []
    deleted = set()
    for j in earlier:
        events, _ = journal.read(run.attempt(j).journal)
        counted = [event for event in events if event.seq <= bounds.get(j, event.seq)]
        prior[str(j)] = counted[-1].seq if counted else 0
        checkpoints += [event for event in counted if event.kind == "checkpoint"]
        deleted |= {event.data.get("uuid") for event in counted if event.kind == "checkpoint_deleted"}
    for event in reversed(checkpoints):
        uuid = event.data.get("uuid")
        if isinstance(uuid, str) and uuid not in deleted and _exists(uuid, spec.checkpoint_storage):
            return Resume(uuid, int(event.data.get("steps_completed") or 0), prior)
    return Resume(spec.latest_checkpoint, spec.steps_completed, prior)


def _bounds(run: RunDir, attempts: list[int]) -> dict[int, int]:
    """What attempts that started in between took as the end of their predecessors. The first word stands: a node that
    comes back may have written more since."""
    bounds: dict[int, int] = {}
    for later in attempts:
        try:
            started = read_json(run.attempt(later).started) or {}
        except RunDirError:
            continue
        for j, seq in (started.get("prior") or {}).items():
            bounds.setdefault(int(j), int(seq))
    return bounds


def _exists(uuid: str, storage: dict[str, Any]) -> bool:
    """Whether the checkpoint's directory is there. Storage that is no directory cannot be asked here: it counts as
    there."""
    if storage.get("type") == "shared_fs" and storage.get("host_path"):
        base = os.path.join(storage["host_path"], storage.get("storage_path") or "")
    elif storage.get("type") == "directory" and storage.get("container_path"):
        base = storage["container_path"]
    else:
        return True
    return os.path.isdir(os.path.join(base, uuid))
