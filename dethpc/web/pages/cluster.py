"""Pools, nodes and slots: who uses what."""

from __future__ import annotations

from dethpc.client import cluster
from dethpc.errors import SchedulerUnavailable
from dethpc.web.asked import Answer, Asked, Page


def overview(asked: Asked) -> Answer:
    shown: dict[str, object] = {"pools": cluster.resource_pools(asked.session), "trouble": ""}
    try:
        shown["nodes"] = cluster.agents(asked.session)
    except SchedulerUnavailable as error:
        shown.update(nodes=[], trouble=str(error))
    return Page("cluster.html", shown, live="experiments")
