"""Ownership of a checkpoint: the owner in its manifest, and the claim needed to delete or read it.

Every checkpoint that a trial publishes names its cluster, experiment and trial in its manifest. A folder's name proves nothing:
any report, archive or configuration can contain it. Checkpoints of earlier releases, and of other programs, name nobody; they are
an experiment's where its master knows that an accepted report of its own run published them.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, NamedTuple, Optional

_UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\Z", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z0-9_.\-]{0,100}\Z")
_IN_MANIFEST = re.compile(rb'\A\{"version": 1, "block": \d{1,20}, "owner": (\{[^{}]{1,600}\})')
_MOST_BYTES = 1024
"""Bytes at the beginning of a manifest among which its owner is."""


class Owner(NamedTuple):
    """``cluster``: the id of the home. ``experiment``: the experiment's uuid, for numbers can come twice. ``experiment_id`` and
    ``trial_id`` are for people: 0 where there were none yet."""

    cluster: str
    experiment: str
    experiment_id: int = 0
    trial_id: int = 0

    def to_json(self) -> Dict[str, Any]:
        return {
            "cluster": self.cluster,
            "experiment": self.experiment_id,
            "trial": self.trial_id,
            "experiment_uuid": self.experiment,
        }

    def __str__(self) -> str:
        number = f"experiment {self.experiment_id}" if self.experiment_id else f"experiment {self.experiment}"
        return f"{number} of cluster {self.cluster}"


UNKNOWN = Owner("unknown", "unknown")


class Claim(NamedTuple):
    """An experiment that takes a checkpoint for its own. ``published``: an accepted report of a run of it, in this home and under
    this ``cluster``, published the checkpoint, at a time when manifests named nobody."""

    cluster: str
    experiment: str
    published: bool = False


class Identity(NamedTuple):
    """What a store holds under a name. ``is_checkpoint``: it has a manifest, or metadata as Determined's have. ``owner``: None
    where it names nobody."""

    exists: bool
    is_checkpoint: bool = False
    owner: Optional[Owner] = None
    is_empty: bool = False  # no file is left of it


def is_uuid(name: str) -> bool:
    """Whether a checkpoint's name is one that core makes."""
    return _UUID.match(name) is not None


def objection(uuid: str, identity: Identity, claim: Claim) -> str:
    """Why the checkpoint is not the claimant's, in words; "" where it is, or where nothing is there."""
    owner = identity.owner
    if not identity.exists or (identity.is_empty and is_uuid(uuid)):
        return ""
    if owner is not None:
        if (owner.cluster, owner.experiment) == (claim.cluster, claim.experiment):
            return ""
        where = "another experiment of this cluster" if owner.cluster == claim.cluster else "another cluster"
        return f"its manifest names {where} ({owner})"
    if not identity.is_checkpoint:
        return "it has neither a manifest nor metadata.json, so it is not a checkpoint"
    if claim.published and is_uuid(uuid):
        return ""
    return "its manifest names no experiment, and no run of this experiment is known to have published it"


def of_manifest(text: bytes) -> Optional[Owner]:
    """The owner that a manifest names, also where the rest of it is damaged; None where it names nobody. What cannot be understood,
    of a later release or damaged, is somebody: ``UNKNOWN``."""
    match = _IN_MANIFEST.match(text[:_MOST_BYTES])
    if match is None:
        return None
    try:
        return from_json(json.loads(match[1])) or UNKNOWN
    except ValueError:
        return UNKNOWN


def from_json(value: Any) -> Optional[Owner]:
    """None for what names nobody, or is not an owner."""
    if not isinstance(value, dict):
        return None
    cluster, experiment = value.get("cluster"), value.get("experiment_uuid")
    numbers: List[Any] = [value.get("experiment"), value.get("trial")]
    if not all(isinstance(word, str) and word and _WORD.match(word) for word in (cluster, experiment)):
        return None
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers):
        return None
    return Owner(str(cluster), str(experiment), *numbers)
