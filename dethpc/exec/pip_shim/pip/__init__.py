"""Stands before pip: keeps it from changing what a job must not change, and is the real pip in everything else. Whether it would
change anything is what its own dry run says. Of two that change one environment at once, which breaks it, the later waits."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import re
import sys

_ELSEWHERE = ("--target", "--prefix", "--root", "--python", "--dry-run", "--help", "-h")
"""Options with which pip installs elsewhere, or nothing."""


def _stop() -> None:
    """End the process as the rules say, if it is a pip that would change an environment that they name."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    arguments = sys.argv[1:]
    changes = bool({"install", "uninstall"} & set(arguments)) and re.fullmatch(r"-m|pip[\d.]*", name)
    elsewhere = any(word.partition("=")[0] in _ELSEWHERE or word.startswith("-t") for word in arguments)
    if not changes or elsewhere or os.environ.get("PIP_TARGET") or os.environ.get("PIP_PREFIX"):
        return
    rule = json.loads(os.environ.get("DETHPC_PIP") or "{}").get(os.path.realpath(sys.prefix))
    if rule is not None:
        exit_code, message, pipe = rule
        packages = _would_change(arguments) if exit_code else []
        if packages and pipe:
            _ask(pipe, packages)
        if packages or exit_code == 0:
            sys.stderr.write(f"{message}\n")
            raise SystemExit(exit_code)
        # Packages of a user, which pip refuses in a virtual environment: the experiment's is one.
        os.environ["PIP_USER"] = "0"
        sys.argv[1:] = [word for word in arguments if word != "--user"]
    _take_turns()


def _would_change(arguments: list[str]) -> list[str]:
    """What pip would install or remove, empty when that is nothing. Ends the process as pip ends, when it cannot tell for a reason
    that would also keep it from installing."""
    if "uninstall" in arguments:
        return _installed(arguments[arguments.index("uninstall") + 1 :])
    from importlib.metadata import version

    if [int(part) for part in re.findall(r"\d+", version("pip"))[:2]] < [22, 2]:
        return [f"what pip {version('pip')} cannot tell beforehand"]  # its dry run came with 22.2
    import subprocess
    import tempfile

    at = arguments.index("install") + 1
    rest = [word for word in arguments[at:] if word != "--user"]
    with tempfile.NamedTemporaryFile("r", suffix=".json", encoding="utf-8") as report:
        pip = [sys.executable, "-m", "pip", *arguments[:at], "--dry-run", "--quiet", "--report", report.name, *rest]
        ended = subprocess.run(
            pip, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "PIP_USER": "0"}
        )
        if ended.returncode:
            sys.stderr.write(ended.stderr.decode(errors="replace"))
            raise SystemExit(ended.returncode)
        items = json.load(report)["install"]
    return [f"{item['metadata']['name']} {item['metadata']['version']}" for item in items]


def _installed(packages: list[str]) -> list[str]:
    """Those of the packages to be removed that are there. What a file of requirements names counts as there."""
    from importlib.metadata import PackageNotFoundError, version

    present = [word for word in packages if word.startswith(("-r", "--requirement"))]
    for word in packages:
        with contextlib.suppress(PackageNotFoundError, ValueError):
            if not word.startswith("-") and version(re.split(r"[<>=!~\[; ]", word)[0]):
                present.append(word)
    return present


def _ask(pipe: str, packages: list[str]) -> None:
    """Have the node's process end this one with the hook, which begins anew where it may install. Comes back where nobody reads."""
    import time

    with contextlib.suppress(OSError):
        fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, json.dumps(packages[:20]).encode()[:3000] + b"\n")
        while True:
            time.sleep(60)


def _take_turns() -> None:
    """Until this process ends no other pip of a job changes the environment. One that nobody can lock is changed without."""
    import fcntl
    import site

    prefix = sys.prefix if os.access(sys.prefix, os.W_OK) else site.getuserbase()  # where pip installs then
    with contextlib.suppress(OSError):
        lock = os.open(os.path.join(prefix, ".dethpc-pip.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"dethpc: waiting for another pip that changes {prefix}\n")
            sys.stderr.flush()
            fcntl.lockf(lock, fcntl.LOCK_EX)


def _give_way() -> None:
    """Put the real pip in the place of this module. Raises: ModuleNotFoundError when there is none."""
    mine = os.path.dirname(os.path.dirname(__file__))
    spec = importlib.machinery.PathFinder.find_spec("pip", [path for path in sys.path if path != mine])
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("No module named 'pip'", name="pip")
    module = sys.modules["pip"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


_stop()
_give_way()
