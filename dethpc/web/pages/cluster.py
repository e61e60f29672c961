"""The cluster page: pools, nodes, slots and their use."""

from __future__ import annotations

from dethpc.client.nouns import cluster
from dethpc.errors import ForbiddenException, SchedulerUnavailable
from dethpc.web.asked import Answer, Page, PageRequest


def overview(request: PageRequest) -> Answer:
    shown: dict[str, object] = {"pools": cluster.resource_pools(request.session), "trouble": ""}
    try:
        shown["nodes"] = cluster.agents(request.session)
    except ForbiddenException:  # nodes are for viewers of all workspaces
        shown["nodes"] = None
    except SchedulerUnavailable as error:
        shown.update(nodes=[], trouble=str(error))
    return Page("cluster.html", shown, live="experiments")
