"""Stands before pip: refuses to change what a job must not change, and is the real pip in everything else. Of two that change one
environment at once, which breaks it, the later waits for the other to end."""

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
    """End the process with what the rules answer, if it is a pip that would change an environment that they name."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    words = sys.argv[1:]
    changes = bool({"install", "uninstall"} & set(words)) and re.fullmatch(r"-m|pip[\d.]*", name)
    elsewhere = any(word.partition("=")[0] in _ELSEWHERE or word.startswith("-t") for word in words)
    if not changes or elsewhere or os.environ.get("PIP_TARGET") or os.environ.get("PIP_PREFIX"):
        return
    rule = json.loads(os.environ.get("DETHPC_PIP") or "{}").get(os.path.realpath(sys.prefix))
    if rule is not None:
        sys.stderr.write(f"{rule[1]}\n")
        raise SystemExit(rule[0])
    _take_turns()


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
