"""The REST API: one file per noun."""

from __future__ import annotations

from fastapi import APIRouter

from dethpc.master.routes import (
    allocations,
    checkpoints,
    cluster,
    experiments,
    goodput,
    handmade,
    jobs,
    masters,
    preview,
    runs,
    search,
    tasks,
    templates,
    trials,
    unmanaged,
    users,
    waiting,
    workspaces,
)

ROUTERS: list[APIRouter] = [
    allocations.router,
    checkpoints.router,
    cluster.router,
    experiments.router,
    goodput.router,
    handmade.router,
    jobs.router,
    masters.router,
    preview.router,
    runs.router,
    search.router,
    tasks.router,
    templates.router,
    trials.router,
    unmanaged.router,
    unmanaged.logs,
    users.router,
    waiting.router,
    workspaces.router,
]
