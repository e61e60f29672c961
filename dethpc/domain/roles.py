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
    """Also creates, stops and deletes experiments, and manages projects, models and templates."""
    ADMIN = 3
    """Also manages users, workspaces, the queue and the cluster, as the owner does."""


NAMES = {Role.ADMIN: "ClusterAdmin", Role.EDITOR: "Editor", Role.VIEWER: "Viewer"}
"""As Determined calls those that can be assigned."""
