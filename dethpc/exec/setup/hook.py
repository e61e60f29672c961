"""Runs ``startup-hook.sh`` of the context on each node before training."""

from __future__ import annotations

import os
import shutil
from typing import Callable, Mapping, Optional, Union

from dethpc.domain.entrypoint import STARTUP_HOOK
from dethpc.domain.secrets import hide
from dethpc.exec.end import NodeResult, of_process
from dethpc.exec.setup.shell_state import Files, ShellState
from dethpc.exec.supervision import processes
from dethpc.exec.supervision.supervise import Supervisor
from dethpc.exec.supervision.tee import Log

NAME = STARTUP_HOOK

Outcome = Union[NodeResult, ShellState, None]
"""How the hook failed, or the state of its shell; None when there is neither."""


def run(
    directory: str,
    env: Mapping[str, str],
    umask: int,
    supervisor: Supervisor,
    log: Log,
    interrupted: Callable[[], object] = lambda: False,
) -> Outcome:
    """Source the hook, if there is one, under ``set -e``, with ``directory`` as its working directory; by bash, or sh where there
    is none. Nobody else can enter the folder of ``directory``. ``interrupted``: whether the hook was ended on purpose, to begin
    anew; the outcome is then None. Raises: OSError."""
    script = os.path.join(directory, NAME)
    if not os.path.isfile(script):
        return None
    shell = shutil.which("bash", path=env.get("PATH")) or "/bin/sh"
    files = Files.make(os.path.dirname(directory))
    try:
        argv = [shell, "-c", files.program(shell, NAME), script]
        status = supervisor.wait_for(processes.start(argv, cwd=directory, env=env, umask=umask))
        if interrupted() and not supervisor.ended_because:
            return None
        outcome = of_process("hook", status, [shell, NAME], env, log)
        if outcome.good and not supervisor.ended_because:
            return _state(files, shell, env, log)
        line = None if os.WIFSIGNALED(status) else files.failed_line(os.WEXITSTATUS(status))
    finally:
        files.remove()
    if supervisor.ended_because:
        message = supervisor.ended_because
    elif os.WIFSIGNALED(status):
        message = f"{NAME} was {outcome.message}"
    else:
        message = ": ".join(filter(None, [_failure(script, line, outcome.exit_code), log.complaint(None)]))
    log.say("ERROR", f"dethpc: {message}")
    return outcome._replace(message=message)


def _state(files: Files, shell: str, env: Mapping[str, str], log: Log) -> Optional[ShellState]:
    state = files.read(shell, env)
    if state is None:
        log.say(
            "WARNING",
            f"dethpc: {NAME} ended before its last line by exec, or by exit with a trap for EXIT of its own: what it exported "
            "does not reach the entrypoint",
        )
    return state


def _failure(script: str, line: Optional[int], code: Optional[int]) -> str:
    if line is None:
        return f"{NAME} exited with {code}"
    return f"{NAME} line {line} failed with exit code {code}: {_text(script, line)}"


def _text(script: str, number: int) -> str:
    """Line ``number`` of the hook, without what promises to be a secret."""
    with open(script, encoding="utf-8", errors="replace") as file:
        line = next((text for n, text in enumerate(file, 1) if n == number), "").strip()
    return hide(line, ("environment", "setup"))
