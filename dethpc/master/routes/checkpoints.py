"""Checkpoints."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from dethpc.errors import NotSupportedYet
from dethpc.master.routes.access import Anyone, Owner, Reading, may_see_experiment
from dethpc.master.wire.checkpoint import Checkpoint, CheckpointAnswer
from dethpc.state import queries

router = APIRouter(prefix="/api/v1/checkpoints", tags=["checkpoints"])


@router.get("/{uuid}")
def get_checkpoint(uuid: str, connection: Reading, who: Anyone) -> CheckpointAnswer:
    fact = queries.checkpoint(connection, uuid)
    may_see_experiment(who, fact.experiment_id)
    origin = queries.checkpoint_origins(connection, [fact])[uuid]
    return CheckpointAnswer(checkpoint=Checkpoint.of(fact, origin))


def _later(what: str) -> Any:
    def route(who: Owner) -> None:
        raise NotSupportedYet(
            f"{what} through the master is not supported yet; training code can do it by the Core API"
        )

    return route


router.delete("", name="delete_checkpoints")(_later("deleting checkpoints"))
router.patch("", name="patch_checkpoints")(_later("changing checkpoints"))
router.post("/rm", name="remove_files")(_later("removing files of checkpoints"))
router.post("/{uuid}/metadata", name="set_metadata")(_later("changing a checkpoint's metadata"))
