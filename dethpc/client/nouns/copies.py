"""Experiments as archives, over the REST API: everything but the files of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, Mapping

from dethpc.client.session import Json, Session

_TAKES = 3600.0  # seconds; a large archive is unpacked before the master answers


def export(session: Session, experiment: int) -> Iterator[bytes]:
    """The archive, as it arrives; one that breaks off is no zip file. Raises NotFound, Refused."""
    return session.chunks(f"/api/v1/experiments/{experiment}/export")


def look(session: Session, archive: Path) -> Json:
    """What an archive holds, at a path that the master can read; nothing changes. Raises Refused for what is no whole one."""
    answer: Json = session.post(
        "/api/v1/experiments/import-archive/look", json={"archive": str(archive)}, timeout=_TAKES
    )
    return answer


def take_in(session: Session, archive: Path, copied: Mapping[str, str], uuid: str, again: bool = False) -> Json:
    """Make an experiment of an archive; returns {"experiment", "before"}. ``copied``: what the checkpoints are called whose files
    are in the installation's storage already, by what they are in the archive; their manifests name the experiment ``uuid``. An
    archive that was taken in ``before`` is the experiment that it is already, unless ``again``. Raises Refused; nothing of it is
    left then."""
    body = {"archive": str(archive), "copied": dict(copied), "experimentUuid": uuid, "again": again}
    answer: Json = session.post("/api/v1/experiments/import-archive", json=body, timeout=_TAKES)
    return answer
