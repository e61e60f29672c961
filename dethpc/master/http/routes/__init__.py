"""The REST API: one file per noun."""

from __future__ import annotations

from fastapi import APIRouter

from dethpc.master.http.routes import (
    allocations,
    checkpoints,
    cluster,
    contexts,
    control,
    experiments,
    goodput,
    jobs,
    masters,
    preview,
    runs,
    search,
    standalone,
    tasks,
    templates,
    tokens,
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
    contexts.router,
    control.router,
    experiments.router,
    goodput.router,
    standalone.router,
    jobs.router,
    masters.router,
    preview.router,
    runs.router,
    search.router,
    tasks.router,
    tasks.older,
    templates.router,
    tokens.router,
    trials.router,
    unmanaged.router,
    unmanaged.logs,
    users.router,
    waiting.router,
    workspaces.router,
]
