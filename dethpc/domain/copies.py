"""The archive of an experiment that moves between installations: a zip file, and what its members are called."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

FORMAT = 1
ABOUT = "experiment.json"
"""``{"format", "release", "cluster_id", "cluster_name", "experiment_id", "name", "state", "exported_at"}``."""
ROWS = "rows.jsonl"
"""All of its rows but metrics, as ``changes.jsonl`` has them."""
METRICS = "metrics.jsonl"
CONTEXT = "context.tar.gz"

_RUN_FILE = re.compile(
    r"runs/([A-Za-z0-9][A-Za-z0-9.-]*)/(slurm\.log|waiting-\d+\.log|attempts/\d+/(?:(?:journal\.jsonl|started\.json|end\.json"
    r"|usage-\d+\.json|matched-\d+\.json)|logs/node-\d+\.log|beside/(?:taken|rank-\d+)\.jsonl))"
)
_CHECKPOINT_FILE = re.compile(r"checkpoints/([A-Za-z0-9][A-Za-z0-9_.\-]*)/(.+)", re.DOTALL)


class Member(NamedTuple):
    """Of which run or checkpoint, and its path there."""

    of: str
    path: str


def run_file(name: str) -> Optional[Member]:
    """What a member is of a run's directory; None: none of those that are copied. No secret is among them."""
    match = _RUN_FILE.fullmatch(name)
    return match and Member(match[1], match[2])


def checkpoint_file(name: str) -> Optional[Member]:
    """What a member is of a checkpoint; None: nothing, or nothing that lies in it."""
    match = _CHECKPOINT_FILE.fullmatch(name)
    if match is None or any(part in ("", ".", "..") for part in match[2].rstrip("/").split("/")) or "\0" in name:
        return None
    return Member(match[1], match[2])
