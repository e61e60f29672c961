"""The job queue: pending and running jobs, in their order."""

from __future__ import annotations

import contextlib
from typing import Any

from dethpc.client.nouns import cluster, jobs, workspaces
from dethpc.errors import Refused
from dethpc.web.asked import Answer, Goto, Page, PageRequest
from dethpc.web.pages.experiments import MOST_PROJECTS


def listing(request: PageRequest) -> Answer:
    pools = cluster.resource_pools(request.session)
    names = [pool["name"] for pool in pools]
    pool = request.query.get("pool") or next(
        (p["name"] for p in pools if p.get("defaultComputePool")), names[0] if names else ""
    )
    waiting = jobs.waiting(request.session)
    project, projects = request.count("project", 0, 10**8), workspaces.projects(request.session, limit=MOST_PROJECTS)
    queued, order = jobs.queue(request.session, pool, projectId=project or None) if pool in names else ([], "")
    shown = {"pools": names, "pool": pool, "jobs": queued, "order": order, "waiting": waiting}
    shown |= {"projects": projects if len(projects) > 1 else [], "project": project}
    return Page("queue.html", shown, live="experiments")


def act(request: PageRequest) -> Answer:
    """Manage Job: priority, weight, pool, place."""
    job, action = request.form.get("job", ""), request.form.get("action", "")
    change: dict[str, Any] = {"jobId": job}
    if action == "top":
        if first := request.form.get("first"):
            change["aheadOf"] = first
    elif action in _BESIDE:
        change[_BESIDE[action]] = request.form.get("other", "")
    elif action == "place":
        change.update(_placed(request, job))
    elif action == "priority":
        change["priority"] = _number(request.form.get("priority", ""), "a priority", 1, 99)
    elif action == "weight":
        change["weight"] = _weight(request.form.get("weight", ""))
    elif action == "pool":
        change["resourcePool"] = request.form.get("pool", "")
    else:
        raise Refused(f"there is no action {action!r}; there are top, place, ahead, behind, priority, weight and pool")
    jobs.update(request.session, [change])
    return Goto(request.form.get("back") or "queue", "The job was changed.")


_BESIDE = {"ahead": "aheadOf", "behind": "behindOf"}
"""What dragging a row calls, by where it was let go."""


def _placed(request: PageRequest, job: str) -> dict[str, str]:
    """The change that brings the job to a place of its pool's queue, counted from 1."""
    others = [
        row["jobId"] for row in jobs.listing(request.session, request.form.get("pool") or None) if row["jobId"] != job
    ]
    place = _number(request.form.get("place", ""), "a place", 1, len(others) + 1)
    if not others:
        return {}
    return {"aheadOf": others[place - 1]} if place <= len(others) else {"behindOf": others[-1]}


def _number(text: str, what: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text[:12]) <= most:
        raise Refused(f"{text!r} is not {what}, a whole number from {least} to {most}")
    return int(text)


def _weight(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (weight := float(text)) <= MOST_WEIGHT:
            return weight
    raise Refused(f"{text!r} is not a weight: give a number above 0, {MOST_WEIGHT:,} at most")


MOST_WEIGHT = 10**6
