"""What a configuration says of its environment that cannot work, as far as the login node can tell: what to tell its owner."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

from dethpc.config.environment import Environment

_READS = re.compile(r"^\s*(?:source|\.)\s+(~?/[\w./+@%-]+)(?=\s|;|&|$)", re.MULTILINE)
_ELSEWHERE = "is not on this machine; where compute nodes have none either, no trial can start"


def notes(environment: Environment) -> Iterator[str]:
    """Compute nodes may have what is missing here, so none of them refuses the experiment."""
    if environment.python and not os.access(os.path.expanduser(environment.python), os.X_OK):
        yield f"environment.python: {environment.python} {_ELSEWHERE}"
    for path in _READS.findall(environment.setup or ""):
        if not os.path.exists(os.path.expanduser(path)):
            yield f"environment.setup: {path}, which it reads, {_ELSEWHERE}"
    if environment.setup and (mistake := _mistake(environment.setup)):
        yield f"environment.setup: {mistake}: no trial can start"


def _mistake(lines: str) -> str:
    """What bash cannot read in them. It runs none."""
    bash = ["/bin/bash", "--noprofile", "--norc", "-n"]
    try:
        read = subprocess.run(bash, input=lines.encode(), capture_output=True, timeout=10, env={})
    except (OSError, subprocess.TimeoutExpired):
        return ""
    said = read.stderr.decode(errors="replace").splitlines() if read.returncode else []
    return said[0].removeprefix("/bin/").strip() if said else ""
