"""Images of containers in the cache: which there are, pulling one, and removing those that nobody needs."""

from __future__ import annotations

from dethpc.domain.states import TaskKind
from dethpc.errors import NotFound
from dethpc.master.http.access import Owner, Reading, TheAuth, TheImages
from dethpc.master.http.router import new_router
from dethpc.master.http.wire import image as wire
from dethpc.state import queries

router = new_router(prefix="/api/v1/images", tags=["images"])


@router.get("")
def images(held: TheImages, who: Owner) -> wire.Images:
    """What is there, the newest first, and what is being pulled."""
    pulls = [task for task in held.pulls() if task.config.get("image")]
    return wire.Images(
        images=[wire.Image.of(entry) for entry in held.cache.entries()],
        pulls=[wire.Pull.of(task, held.said(task)) for task in pulls],
    )


@router.post("")
def pull(request: wire.PullRequest, held: TheImages, auth: TheAuth, who: Owner) -> wire.PullAnswer:
    """Bring an image into the cache; one pull of it that is under way serves all who ask."""
    task_id = held.order(request.image, request.resource_pool, request.format, auth.owner, force=request.force)
    task = next((task for task in held.pulls() if task.id == task_id), None)
    if task is None:
        raise NotFound(f"the pull of {request.image} has ended already; ask again")
    return wire.PullAnswer(pull=wire.Pull.of(task, held.said(task)))


@router.get("/pulls/{task_id}")
def get_pull(task_id: str, connection: Reading, held: TheImages, who: Owner) -> wire.PullAnswer:
    task = queries.task(connection, task_id)
    if task.kind is not TaskKind.IMAGE_PULL:
        raise NotFound(f"no image is pulled by task {task_id}")
    return wire.PullAnswer(pull=wire.Pull.of(task, "" if task.state.terminal else held.said(task)))


@router.post("/cancel")
def cancel(request: wire.CancelRequest, held: TheImages, who: Owner) -> wire.CancelAnswer:
    """End the pulls of an image that are under way, and with them the trials that wait for it."""
    return wire.CancelAnswer(task_ids=held.cancel(request.image))


@router.get("/unneeded")
def unneeded(held: TheImages, who: Owner) -> wire.Unneeded:
    """Those that no experiment needs which has not ended."""
    return wire.Unneeded(images=[wire.Image.of(entry) for entry in held.unneeded()])


@router.post("/prune")
def prune(request: wire.PruneRequest, held: TheImages, auth: TheAuth, who: Owner) -> wire.PruneAnswer:
    """Remove these, but for those that somebody needs by now."""
    return wire.PruneAnswer(removed=held.remove([(each.format, each.digest) for each in request.images], auth.owner))
