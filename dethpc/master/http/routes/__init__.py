"""The REST API: one file per noun."""

from __future__ import annotations

from dethpc.master.http.routes.on_demand import LazyRouter

ROUTERS = (
    LazyRouter("allocations.router", "allocations"),
    LazyRouter("checkpoints.router", "checkpoints"),
    LazyRouter("checkpoints.archives", "checkpoints"),
    LazyRouter("cluster.router", "agents", "resource-pools"),
    LazyRouter("contexts.router", "experiments"),
    LazyRouter("control.router", "experiments", "projects"),
    LazyRouter("copies.router", "experiments"),
    LazyRouter("doctor.router", "doctor"),
    LazyRouter("experiments.router", "contexts", "experiment", "experiments", "experiments-search"),
    LazyRouter("garbage.router", "experiments", "garbage"),
    LazyRouter("goodput.router", "experiments", "resource-pools", "trials"),
    LazyRouter("hyperparameters.router", "experiments"),
    LazyRouter("images.router", "images"),
    LazyRouter("standalone.router", "experiments"),
    LazyRouter("jobs.router", "job-queues", "job-queues-v2"),
    LazyRouter("masters.router", "", "health", "info", "master"),
    LazyRouter("preview.router", "preview-hp-search"),
    LazyRouter("runs.router", "runs"),
    LazyRouter("search.router", "experiments"),
    LazyRouter("tasks.router", "tasks"),
    LazyRouter("tasks.older", "tasks"),
    LazyRouter("templates.router", "templates"),
    LazyRouter("tokens.router", "tokens"),
    LazyRouter("trials.router", "scheduler-jobs", "trials"),
    LazyRouter("unmanaged.router", "experiments", "runs", "trials", "webhooks"),
    LazyRouter("unmanaged.logs", "task-logs"),
    LazyRouter("users.router", "auth", "me", "users"),
    LazyRouter("waiting.router", "experiments", "trials", "waiting"),
    LazyRouter("workspaces.router", "projects", "workspaces"),
)
"""All of them, and the nouns of their paths."""
