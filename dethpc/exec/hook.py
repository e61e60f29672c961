"""``startup-hook.sh`` of the context: whatever the user wants done on each node before training."""

from __future__ import annotations

import os
import shutil
from typing import Mapping, Optional

from dethpc.domain.entrypoint import STARTUP_HOOK
from dethpc.exec import processes
from dethpc.exec.end import NodeResult, of_process
from dethpc.exec.supervise import Supervisor
from dethpc.exec.tee import Log

NAME = STARTUP_HOOK


def run(directory: str, env: Mapping[str, str], umask: int, supervisor: Supervisor, log: Log) -> Optional[NodeResult]:
    """Run the hook, if there is one, with ``directory`` as its working directory; by bash, or sh where there is none.
    None when all is well."""
    script = os.path.join(directory, NAME)
    if not os.path.isfile(script):
        return None
    shell = shutil.which("bash", path=env.get("PATH")) or "/bin/sh"
    child = processes.start([shell, script], cwd=directory, env=env, umask=umask)
    status = supervisor.wait_for(child)
    outcome = of_process("hook", status, [shell, NAME], env, log)
    if supervisor.ended_because:
        outcome.message = supervisor.ended_because
    elif outcome.good:
        return None
    elif os.WIFSIGNALED(status):
        outcome.message = f"{NAME} was {outcome.message}"
    else:
        outcome.message = f"{NAME} exited with {outcome.exit_code}"
    log.say("ERROR", f"dethpc: {outcome.message}")
    return outcome
