"""Roles: what a user of a master may do. Each contains the ones below it.

Whatever a role allows, jobs run as the Unix user who owns the master.
"""

from __future__ import annotations

from enum import IntEnum


class Role(IntEnum):
    """By rising rights."""

    NONE = 0
    """Logs in, and sees who they are."""
    VIEWER = 1
    """Sees experiments, metrics, logs, code and configurations, without their secrets."""
    EDITOR = 2
    """Also creates, stops, deletes and queues experiments, and manages projects, models and templates."""
    ADMIN = 3
    """Also manages users, workspaces and the cluster, as the owner does."""


NAMES = {Role.ADMIN: "ClusterAdmin", Role.EDITOR: "Editor", Role.VIEWER: "Viewer"}
"""As Determined calls those that can be assigned."""

WORKSPACE_ADMIN = 4
"""The number under which Determined's API knows an admin of one workspace alone, which is ``Role.ADMIN`` there."""

ASSIGNABLE: dict[int, str] = {**{int(role): name for role, name in NAMES.items()}, WORKSPACE_ADMIN: "WorkspaceAdmin"}
"""By their numbers in Determined's API."""
