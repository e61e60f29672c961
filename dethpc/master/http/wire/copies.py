"""Experiments that move between installations."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import PlainSerializer

from dethpc.domain.secrets import masked
from dethpc.master.http.models import Wire
from dethpc.master.http.wire.experiment import Experiment


class LookRequest(Wire):
    archive: str  # an absolute path that the master can read


class Found(Wire):
    """``checkpoints``: those whose files the archive has; ``known``: those of its uuids that others have here. ``taken_in``: the
    experiment that this archive has become here already. ``cluster_id``: of this installation."""

    experiment_id: int
    cluster_name: str
    name: str
    trials: int
    checkpoints: list[str] = []
    known: list[str] = []
    taken_in: int | None = None
    cluster_id: str = ""
    checkpoint_storage: Annotated[dict[str, Any], PlainSerializer(masked)]


class TakeInRequest(LookRequest):
    """``copied``: the checkpoints of the archive whose files are in this installation's storage, and what they are called there.
    ``experiment_uuid``: the experiment that their manifests name. ``again``: also where it was taken in before."""

    copied: dict[str, str] = {}
    experiment_uuid: str = ""
    again: bool = False


class TakenIn(Wire):
    """``before``: it was taken in by an earlier request, and nothing was done."""

    experiment: Experiment
    before: bool = False
