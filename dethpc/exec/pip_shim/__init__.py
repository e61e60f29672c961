"""Keeps pip from changing Python environments that a job must not change; what would change nothing passes.

The folder of this package is the first on PYTHONPATH in jobs, so that ``pip`` and ``python3 -m pip`` find the package ``pip`` in it
before the real one.
"""

from __future__ import annotations

import json
import os
from typing import Optional

RULES = "DETHPC_PIP"
"""Variable: ``{prefix: [exit code, words, pipe]}``: how pip ends that would change the environment at ``prefix``. Where ``pipe`` is
not empty, it writes what it would install into that named pipe instead, and waits to be ended. With exit code 0 it does nothing at
all, with none (null) whatever it is asked to."""

FOLDER = os.path.dirname(os.path.abspath(__file__))
DETHPC = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))
"""Where this dethpc is imported from: the harness's zip file, or a folder."""


def keep_out(env: dict[str, str], prefix: str, exit_code: Optional[int], message: str, pipe: str = "") -> None:
    """From now on, pip in the processes that get ``env`` prints ``message`` instead of changing the environment at ``prefix``, or
    asks by ``pipe``."""
    folders = env.get("PYTHONPATH", "").split(os.pathsep)
    env["PYTHONPATH"] = os.pathsep.join([FOLDER, *(path for path in folders if path and path != FOLDER)])
    rules = json.loads(env.get(RULES, "{}"))
    env[RULES] = json.dumps({**rules, os.path.realpath(prefix): [exit_code, message, pipe]})


def ask(env: dict[str, str], prefix: str, pipe: str) -> None:
    """As ``keep_out`` has been told for ``prefix``, but ask by ``pipe``."""
    exit_code, message, _ = json.loads(env[RULES])[os.path.realpath(prefix)]
    keep_out(env, prefix, exit_code, message, pipe)
