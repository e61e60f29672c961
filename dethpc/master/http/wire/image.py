"""Images of containers on the wire: ours, for Determined has none."""

from __future__ import annotations

from dethpc.domain import facts
from dethpc.exec.images.cache import Entry
from dethpc.master.http.models import Wire, state, time, time_or_none


class Image(Wire):
    """One that is there. ``size`` in bytes; ``name``: as it was pulled."""

    name: str
    digest: str
    format: str
    path: str
    size: int
    pulled_at: str

    @classmethod
    def of(cls, entry: Entry) -> Image:
        return cls(
            name=entry.name,
            digest=entry.digest,
            format=entry.format,
            path=entry.path,
            size=entry.bytes,
            pulled_at=time(entry.made_at),
        )


class Pull(Wire):
    """A task that brings one. ``progress``: how far it is, in words; ``reason``: why it ended so."""

    task_id: str
    image: str
    format: str
    state: str
    progress: str
    reason: str
    start_time: str
    end_time: str | None

    @classmethod
    def of(cls, task: facts.Task, progress: str) -> Pull:
        return cls(
            task_id=task.id,
            image=task.config.get("image", ""),
            format=task.config.get("format", ""),
            state=state(task.state),
            progress=progress,
            reason=task.reason,
            start_time=time(task.created_at),
            end_time=time_or_none(task.ended_at),
        )


class Images(Wire):
    images: list[Image]
    pulls: list[Pull]


class PullRequest(Wire):
    """``format`` "": as the pool's runtime wants it; ``resource_pool`` "": the usual one."""

    image: str
    resource_pool: str = ""
    format: str = ""
    force: bool = False


class PullAnswer(Wire):
    pull: Pull


class CancelRequest(Wire):
    image: str


class CancelAnswer(Wire):
    task_ids: list[str]


class Unneeded(Wire):
    images: list[Image]


class Chosen(Wire):
    digest: str
    format: str


class PruneRequest(Wire):
    images: list[Chosen]


class PruneAnswer(Wire):
    removed: int
