"""Checkpoints over the REST API. Answers are the wire's JSON objects."""

from __future__ import annotations

from typing import Iterator, List, Mapping, Sequence

from dethpc.client import names
from dethpc.client.session import Json, Session
from dethpc.domain.secrets import MASK
from dethpc.domain.trial_config import TrialConfig
from dethpc.errors import Refused


def get(session: Session, uuid: str) -> Json:
    """The checkpoint (the wire's ``checkpoint`` object). Raises NotFound."""
    checkpoint: Json = session.get(f"/api/v1/checkpoints/{uuid}")["checkpoint"]
    return checkpoint


def listing(session: Session, *, states: Sequence[str] = (), offset: int = 0, limit: int = 0) -> Json:
    """Those of every experiment, the newest first, one page: {"checkpoints", "pagination"}. ``limit`` 0: all. ``states``: those in
    one of them, all where it is empty."""
    params = {"states": list(states), "offset": offset, "limit": limit, "orderBy": "ORDER_BY_DESC"}
    page: Json = session.get("/api/v1/checkpoints", params=params)
    return page


def beginning(session: Session, uuid: str) -> str:
    """The uuid of the checkpoint that begins so. Raises NotFound, Refused."""
    params: Json = {"uuid": uuid, "limit": _ALIKE, "orderBy": "ORDER_BY_DESC"}
    rows = session.get("/api/v1/checkpoints", params=params)["checkpoints"]
    return names.choose("checkpoint", uuid, map(_candidate, rows), beginnings=True)


def _candidate(row: Json) -> names.Candidate:
    training, steps = row["training"], (row["metadata"] or {}).get("steps_completed")
    return names.Candidate(
        row["uuid"], "", f"experiment {training['experimentId']}, trial {training['trialId']}, step {steps}"
    )


_ALIKE = 50  # checkpoints whose uuid begins alike
_NAMED = 5  # files, of those that a checkpoint has


def no_match(wire: Json, globs: Sequence[str]) -> str:
    """What to say where ``globs`` mean no file of the checkpoint (the wire's object)."""
    files = sorted(path for path in wire.get("resources") or {} if not path.endswith("/"))
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    has = f"{', '.join(files[:_NAMED])}{more}" if files else "no files"
    return f"no file of checkpoint {wire['uuid']} matches {' or '.join(globs)}; it has {has}"


def archive(session: Session, uuid: str) -> Iterator[bytes]:
    """All its files as a tar archive, in pieces; one that breaks off raises. Raises NotFound, Refused."""
    return session.chunks(f"/checkpoints/{uuid}")


def delete(session: Session, uuids: Sequence[str]) -> None:
    """Delete checkpoints; a task removes their files. Raises NotFound, and Refused when somebody needs one."""
    session.delete("/api/v1/checkpoints", json={"checkpointUuids": list(uuids)})


def remove_files(session: Session, uuids: Sequence[str], globs: Sequence[str]) -> None:
    """Delete the files that match ("**" means any folders); without globs only look which there are. Raises as ``delete``."""
    session.post("/api/v1/checkpoints/rm", json={"checkpointUuids": list(uuids), "checkpointGlobs": list(globs)})


def unwanted(session: Session, experiment: int, policy: Mapping[str, int]) -> Json:
    """What this policy (``save_experiment_best``, ``save_trial_best``, ``save_trial_latest``) would delete: {"metric_name",
    "checkpoints"}, each with "UUID", "TrialID", "StepsCompleted", "State", "ValidationMetrics", "Resources". Raises NotFound."""
    answer: Json = session.get(f"/experiments/{experiment}/preview_gc", params=dict(policy))
    return answer


def prunable(session: Session, experiments: Sequence[int] = ()) -> List[Json]:
    """What the policies of experiments that have ended, all or these, would delete now: each "id", "name", "checkpoints" and "size"
    in bytes. Raises NotFound."""
    rows: List[Json] = session.get("/api/v1/garbage", params={"experimentIds": list(experiments)})["experiments"]
    return rows


def prune(session: Session, experiments: Sequence[int]) -> None:
    """Follow the policies of these experiments now; a task removes the files. Raises NotFound, Refused."""
    session.post("/api/v1/garbage", json={"experimentIds": list(experiments)})


def unknown(session: Session, uuids: Sequence[str]) -> List[str]:
    """Those that no experiment and no rendered run has, or had and deleted with all its files."""
    lost: List[str] = session.post("/api/v1/garbage/unknown", json={"checkpointUuids": list(uuids)})["checkpointUuids"]
    return lost


def set_metadata(session: Session, uuid: str, metadata: Json) -> None:
    """Replace the checkpoint's metadata, as the master has them. Raises NotFound."""
    session.post(f"/api/v1/checkpoints/{uuid}/metadata", json={"checkpoint": {"uuid": uuid, "metadata": metadata}})


def refuse_elsewhere(uuid: str, place: str) -> None:
    """Raises Refused where training code put the checkpoint into another ``place``: its word must not decide what det reads."""
    if place:
        raise Refused(
            f"checkpoint {uuid} is in {place}, where the training code put it, and not in the checkpoint_storage of its "
            "experiment: det reads nothing there; copy it by hand"
        )


def storage(checkpoint: Json) -> Json:
    """The ``checkpoint_storage`` section that the checkpoint was written with, without the keys that the master does not show: the
    storage is asked with this user's own. {} when the master does not say. Raises Refused where that is not the experiment's."""
    refuse_elsewhere(checkpoint.get("uuid") or "", checkpoint.get("elsewhere") or "")
    section = TrialConfig.from_json((checkpoint.get("training") or {}).get("experimentConfig") or {}).checkpoint_storage
    return {name: value for name, value in section.items() if value != MASK}
