"""Routes of container images in the cache: list them, pull one, and remove those that are no longer needed."""

from __future__ import annotations

from dethpc.domain import facts
from dethpc.domain.states import TaskKind
from dethpc.errors import NotFound
from dethpc.exec.images.cache import Entry
from dethpc.master.http.access import Owner, Reading, TheAuth, TheImages
from dethpc.master.http.models import Wire, state, time, time_or_none
from dethpc.master.http.router import new_router
from dethpc.state import queries


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


router = new_router(prefix="/api/v1/images", tags=["images"])


@router.get("")
def images(held: TheImages, who: Owner) -> Images:
    """What is there, the newest first, and what is being pulled."""
    pulls = [task for task in held.pulls() if task.config.get("image")]
    return Images(
        images=[Image.of(entry) for entry in held.cache.entries()],
        pulls=[Pull.of(task, held.status(task)) for task in pulls],
    )


@router.post("")
def pull(request: PullRequest, held: TheImages, auth: TheAuth, who: Owner) -> PullAnswer:
    """Bring an image into the cache; one pull of it that is under way serves all who ask."""
    task_id = held.order(request.image, request.resource_pool, request.format, auth.owner, force=request.force)
    task = next((task for task in held.pulls() if task.id == task_id), None)
    if task is None:
        raise NotFound(f"the pull of {request.image} has ended already; ask again")
    return PullAnswer(pull=Pull.of(task, held.status(task)))


@router.get("/pulls/{task_id}")
def get_pull(task_id: str, connection: Reading, held: TheImages, who: Owner) -> PullAnswer:
    task = queries.task(connection, task_id)
    if task.kind is not TaskKind.IMAGE_PULL:
        raise NotFound(f"no image is pulled by task {task_id}")
    return PullAnswer(pull=Pull.of(task, "" if task.state.terminal else held.status(task)))


@router.post("/cancel")
def cancel(request: CancelRequest, held: TheImages, who: Owner) -> CancelAnswer:
    """End the pulls of an image that are under way, and with them the trials that wait for it."""
    return CancelAnswer(task_ids=held.cancel(request.image))


@router.get("/unneeded")
def unneeded(held: TheImages, who: Owner) -> Unneeded:
    """Those that no experiment needs which has not ended."""
    return Unneeded(images=[Image.of(entry) for entry in held.unneeded()])


@router.post("/prune")
def prune(request: PruneRequest, held: TheImages, auth: TheAuth, who: Owner) -> PruneAnswer:
    """Remove these, but for those that a job needs by now."""
    return PruneAnswer(removed=held.remove([(image.format, image.digest) for image in request.images], auth.owner))
