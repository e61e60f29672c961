"""A Python environment of the experiment's own, on shared_fs: where ``environment.venv: per-experiment`` asks for it, or where pip
would install something into the environment that serves det.

The first run makes it and fills it by its ``startup-hook.sh``; from then on it stays as it is, so that every trial of the
experiment has the same packages. Each attempt to make it has a folder of its own, and ``ready.json`` names the one that counts:
whoever is killed on the way, or goes on after its node was given up, leaves a folder that nobody uses. The lock spares work;
nothing depends on it.

The environment sees the packages of the ``python3`` that it was made with, whether that is a virtual environment itself or not.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import time
from typing import Callable, Iterator, Mapping, Optional

from dethpc.errors import RunDirError
from dethpc.exec import pip_shim
from dethpc.exec.end import NodeResult, of_process
from dethpc.exec.setup.hook import Outcome
from dethpc.exec.supervision import processes
from dethpc.exec.supervision.supervise import Supervisor
from dethpc.exec.supervision.tee import Log
from dethpc.rundir.files import create_once, read_json

PATIENCE = 3600.0
"""Seconds to wait for another run that makes it; after that this one makes its own, and the first that is ready counts."""

_LOOK_SECONDS = 0.5

Hook = Callable[[Mapping[str, str]], Outcome]
"""Runs the hook in an environment."""


def ready(folder: str) -> Optional[str]:
    """The environment in ``folder`` that runs use, None before there is one. Raises: RunDirError, OSError."""
    entry = read_json(os.path.join(folder, "ready.json")) if folder else None
    if entry is None:
        return None
    path = os.path.join(folder, str(entry["venv"]))
    if not os.path.isdir(path):
        raise RunDirError(f"{path} is gone; delete {folder}, and the next run makes it anew")
    return path


def activate(env: Mapping[str, str], path: str) -> dict[str, str]:
    """``env`` as the environment's ``activate`` leaves it."""
    active = {name: value for name, value in env.items() if name != "PYTHONHOME"}
    return {**active, "VIRTUAL_ENV": path, "PATH": os.path.join(path, "bin") + os.pathsep + env.get("PATH", os.defpath)}


def in_use(folder: str) -> str:
    """Raises: RunDirError when the environment is gone; OSError."""
    path = ready(folder)
    if path is None:
        raise RunDirError(f"{folder} holds no environment that is ready")
    return path


def keep_pip_out(env: dict[str, str], path: str) -> None:
    """Of the environment at ``path``, in the entrypoint."""
    message = f"dethpc: pip is kept out of {path}: other trials use it. Install in startup-hook.sh, which fills it."
    pip_shim.keep_out(env, path, 1, message)


def in_need(folder: str) -> bool:
    """Whether pip has needed it in a run of the experiment."""
    return bool(folder) and os.path.exists(os.path.join(folder, "lock"))


class Request:
    """Pip in the hook asks for an environment that it may change; the hook's processes are then ended. A context manager."""

    def __init__(self, folder: str, supervisor: Supervisor) -> None:
        """``folder`` is one of this node that nobody else can write to. Raises: OSError."""
        self.pipe, self.packages = os.path.join(folder, "pip"), ""
        self._supervisor = supervisor
        os.mkfifo(self.pipe, 0o600)
        self._fd = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK)  # for writing, too, or it would be at its end at once

    def __enter__(self) -> Request:
        self._supervisor.also(self._fd, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.no_more(self._fd)
        os.close(self._fd)
        os.unlink(self.pipe)

    def _read(self) -> None:
        text = os.read(self._fd, 1 << 12).decode(errors="replace")
        try:
            self.packages = ", ".join(str(package) for package in json.loads(text.splitlines()[0]))
        except (ValueError, TypeError, IndexError):
            self.packages = "something that it did not name"
        processes.send(processes.descendants(), signal.SIGKILL)


def run_hook(folder: str, name: str, env: Mapping[str, str], hook: Hook, supervisor: Supervisor, log: Log) -> Outcome:
    """Run the hook in the experiment's environment, which is made and filled if it is not ready.

    ``name``: what no other attempt to make it is called. Raises: RunDirError, OSError.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if ready(folder) is None:
        with _lock(folder, supervisor, log):
            if supervisor.ended_because:
                return NodeResult("hook", 1, message=supervisor.ended_because)
            if ready(folder) is None:
                return _fill(folder, name, env, hook, supervisor, log)
    path = ready(folder)
    assert path is not None
    active = activate(env, path)
    pip_shim.keep_out(active, path, 0, f"dethpc: nothing is installed: {path} was filled by the experiment's first run")
    return hook(active)


def _fill(folder: str, name: str, env: Mapping[str, str], hook: Hook, supervisor: Supervisor, log: Log) -> Outcome:
    for left_over in os.listdir(folder):
        if left_over not in ("lock", "ready.json"):
            shutil.rmtree(os.path.join(folder, left_over), ignore_errors=True)
    path = os.path.join(folder, name)
    log.say("INFO", f"dethpc: making the experiment's Python environment {path}")
    active = activate(env, path)
    pip_shim.keep_out(active, path, None, "")
    outcome: Outcome = _make(path, env, supervisor, log) or hook(active)
    failed = isinstance(outcome, NodeResult)
    if failed or not create_once(os.path.join(folder, "ready.json"), {"venv": name, "at": time.time()}):
        shutil.rmtree(path, ignore_errors=True)
    return outcome


def _make(path: str, env: Mapping[str, str], supervisor: Supervisor, log: Log) -> Optional[NodeResult]:
    python = shutil.which("python3", path=env.get("PATH")) or sys.executable
    argv = [python, "-m", "dethpc.exec.setup.venv", path]
    child = processes.start(argv, cwd=os.path.dirname(path), env=env, umask=0o077)
    outcome = of_process("hook", supervisor.wait_for(child), argv, env, log)
    if outcome.good and not supervisor.ended_because:
        return None
    why = supervisor.ended_because or f"the experiment's Python environment cannot be made: {outcome.message}"
    log.say("ERROR", f"dethpc: {why}")
    return outcome._replace(message=why)


@contextlib.contextmanager
def _lock(folder: str, supervisor: Supervisor, log: Log) -> Iterator[None]:
    """Alone in ``folder``, or with the environment ready, or after ``PATIENCE``, or with ``supervisor.ended_because`` set."""
    give_up_at = time.monotonic() + PATIENCE
    announced = False
    with open(os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        while time.monotonic() < give_up_at and not supervisor.ended_because:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass
            except OSError as error:
                log.say(
                    "WARNING",
                    f"dethpc: {folder} cannot be locked, so that others may make it at the same time: {error}",
                )
                break
            if ready(folder) is not None:
                break
            if not announced:
                log.say("INFO", "dethpc: waiting for another run to fill the experiment's Python environment")
                announced = True
            supervisor.poll(_LOOK_SECONDS)
            supervisor.ended_because = supervisor.watch.verdict()
        yield


# --- in the job's own python3 -----------------------------------------------------------------------------------------


def make(path: str) -> None:
    """An environment that sees this interpreter's packages, those of its user included, and has commands for them."""
    import site
    import subprocess
    import venv

    packages = site.getsitepackages() + ([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])
    venv.EnvBuilder(symlinks=True).create(path)
    subprocess.run([os.path.join(path, "bin", "python3"), "-m", "dethpc.exec.setup.venv", path, *packages], check=True)


def complete(path: str, packages: list[str]) -> None:
    """In the new environment's own interpreter: see ``packages``, as the interpreter that they belong to sees them."""
    import site
    import subprocess
    import sysconfig

    # addsitedir, and not the paths alone: what is installed for editing stands in .pth files of its own.
    lines = [f"import site; site.addsitedir({folder!r})\n" for folder in packages]
    with open(os.path.join(sysconfig.get_path("purelib"), "_parent_packages.pth"), "w", encoding="utf-8") as file:
        file.writelines(lines)
    for folder in packages:
        site.addsitedir(folder)
    if "pip" not in _commands():
        subprocess.run([sys.executable, "-m", "ensurepip"], check=True)
    for name, (module, function) in _commands().items():
        _write_command(os.path.join(path, "bin", name), module, function)


def _commands() -> dict[str, tuple[str, str]]:
    """What the packages install as commands: name -> module, function."""
    from importlib.metadata import distributions

    points = [point for dist in distributions() for point in dist.entry_points if point.group == "console_scripts"]
    commands = [(point.name, point.value.partition("[")[0].partition(":")) for point in points]
    return {name: (module.strip(), function.strip()) for name, (module, _, function) in commands if "/" not in name}


def _write_command(path: str, module: str, function: str) -> None:
    """The parent's own would run the parent's interpreter, which does not see this environment."""
    if os.path.lexists(path):
        return
    python = os.path.join(os.path.dirname(path), "python3")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "w", encoding="utf-8") as file:
        # By way of sh: a kernel cuts the first line off after 127 or 255 bytes, and a blank ends the name in it.
        file.write(f"""#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
from {module} import {function.partition(".")[0]}
sys.exit({function}())
""")


if __name__ == "__main__":
    if sys.argv[2:]:
        complete(sys.argv[1], sys.argv[2:])
    else:
        make(sys.argv[1])
