"""The experiment's ``bind_mounts`` without a container: a link in the working directory, where the path lies in it.

Elsewhere nothing can be put in place: an absolute path is what the node has there, of which the configuration warns.
"""

from __future__ import annotations

import os
import shutil
from typing import Optional, Sequence

from dethpc.domain.trial_config import WORKDIR, BindMount
from dethpc.exec.supervision.tee import Log


def link(mounts: Sequence[BindMount], directory: str, log: Log) -> None:
    """Make the links in ``directory``. What the context has at such a path makes room, as it does below a mount. What
    cannot be linked is said in the log. Raises OSError."""
    for mount in mounts:
        host, inside = mount.host_path, _inside(mount.container_path)
        if inside is None:
            continue
        target = os.path.join(directory, inside)
        parent = os.path.realpath(os.path.dirname(target))
        if os.path.commonpath([parent, os.path.realpath(directory)]) != os.path.realpath(directory):
            log.say("WARNING", f"dethpc: bind_mounts: {inside} is skipped, because it is not in the working directory")
        elif not os.path.exists(host):
            log.say("WARNING", f"dethpc: bind_mounts: {inside} is skipped, because this node has no {host}")
        else:
            os.makedirs(parent, mode=0o700, exist_ok=True)
            _make_room(target)
            os.symlink(host, target)


def _inside(container_path: str) -> Optional[str]:
    """The path relative to the working directory; None when it is not below it."""
    path = os.path.normpath(os.path.join(WORKDIR, container_path))
    return os.path.relpath(path, WORKDIR) if path.startswith(f"{WORKDIR}/") else None


def _make_room(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
