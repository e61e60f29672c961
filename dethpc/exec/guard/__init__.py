"""Keeps pip out of Python environments that a job must not change.

The folder of this package is the first on PYTHONPATH in jobs, so that ``pip`` and ``python3 -m pip`` find the package ``pip`` in it
before the real one.
"""

from __future__ import annotations

import json
import os

RULES = "DETHPC_PIP"
"""Variable: ``{prefix: [exit code, words]}``, what pip answers when it is asked to change the environment at ``prefix``."""

FOLDER = os.path.dirname(os.path.abspath(__file__))
DETHPC = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))
"""Where this dethpc is imported from: the harness's zip file, or a folder."""


def keep_out(env: dict[str, str], prefix: str, exit_code: int, words: str) -> None:
    """From now on, pip in the processes that get ``env`` says ``words`` instead of changing the environment at ``prefix``."""
    found = env.get("PYTHONPATH", "").split(os.pathsep)
    env["PYTHONPATH"] = os.pathsep.join([FOLDER, *(path for path in found if path and path != FOLDER)])
    rules = json.loads(env.get(RULES, "{}"))
    env[RULES] = json.dumps({**rules, os.path.realpath(prefix): [exit_code, words]})
