"""Sessions with a master and its calls, as scripts for Determined spell them."""

from __future__ import annotations

from dethpc.common.api import authentication, bindings, certs, errors
from dethpc.common.api._paging import PageOpts, read_paginated
from dethpc.common.api._session import BaseSession, Response, Session, TaskSession, UnauthSession
from dethpc.common.api._workspaces import workspace_by_name
from dethpc.common.api.address import canonicalize_master_url, get_default_master_url
from dethpc.common.api.authentication import salt_and_hash
from dethpc.common.api.logs import pprint_logs, task_logs, trial_logs

__all__ = [
    "BaseSession",
    "PageOpts",
    "Response",
    "Session",
    "TaskSession",
    "UnauthSession",
    "authentication",
    "bindings",
    "canonicalize_master_url",
    "certs",
    "errors",
    "get_default_master_url",
    "pprint_logs",
    "read_paginated",
    "salt_and_hash",
    "task_logs",
    "trial_logs",
    "workspace_by_name",
]
