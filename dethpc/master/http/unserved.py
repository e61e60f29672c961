"""Endpoints of Determined's API that this API does not serve, with an explanation of each for the user of a client."""

from __future__ import annotations

import re

_TASKS = "commands, shells, notebooks, TensorBoards and other tasks of their own are not supported yet"
_BINDINGS = "pools are bound to no workspace: every workspace may use each of them"
_KUBERNETES = "this cluster runs Slurm, and no Kubernetes"
_OURS = "jobs of dethpc do not start, meet or end by this request, but by their run directory (docs/run-directory.md)"

_PARTS: dict[str, str] = {
    # a regular expression of the beginning of paths, up to a "/"; the first that fits counts
    r"/api/v1/(commands|shells|notebooks|tensorboards|generic-tasks)": _TASKS,
    r"/api/v1/tasks/[^/]+/(kill|pause|unpause|config|context_directory)": _TASKS,
    r"/proxy": _TASKS,
    r"/api/v1/(allocations|tasks)/[^/]+/acceleratorData": "which accelerators an attempt had is not kept yet",
    r"/api/v1/allocations": _OURS,
    r"/api/v1/(k8s-resource-managers|namespace-bindings)": _KUBERNETES,
    r"/api/v1/workspaces/[^/]+/((list-)?namespace-bindings|get-k8s-resource-quotas|set-resource-quota)": _KUBERNETES,
    r"/api/v1/resource-pools/[^/]+/workspace-bindings": _BINDINGS,
    r"/users": "users have API v1 alone: /api/v1/users",
    r"/api/v1/experiments/[^/]+/tensorboard-files": "TensorBoard files are not deleted by request yet",
}
_SENTENCES = [(re.compile(f"(?:{beginning})(?:/|$)"), sentence) for beginning, sentence in _PARTS.items()]


def why_not(path: str) -> str | None:
    """Why there is no answer to any request at ``path`` that no route serves; None where Determined has none either."""
    return next((sentence for pattern, sentence in _SENTENCES if pattern.match(path)), None)
