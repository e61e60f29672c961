"""One master's installation: where it lives, what its site says, who it is."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import dethpc
from dethpc.config.site import SiteConfig, find_site, load_site
from dethpc.engine.pools import Rules
from dethpc.engine.state import BadNodePolicy
from dethpc.errors import Refused, RunDirError
from dethpc.rundir.files import create_once, read_json
from dethpc.rundir.home import Home


@dataclass(slots=True)
class Installation:
    home: Home
    site: SiteConfig
    cluster_id: str
    scheduler: str  # slurm or local
    started_at: float = field(default_factory=time.time)
    version: str = dethpc.__version__

    @property
    def cluster_name(self) -> str:
        return self.site.cluster_name

    @property
    def queue_rules(self) -> dict[str, Rules]:
        """By pool."""
        return {name: Rules(pool.scheduler, pool.window) for name, pool in self.site.pools.items()}

    @property
    def bad_nodes(self) -> BadNodePolicy:
        bad = self.site.bad_nodes
        return BadNodePolicy(bad.failures, bad.within_hours * 3600, bad.exclude_hours * 3600)


def cluster_id(home: Home) -> str:
    """A uuid, made once per home."""
    path = home.cluster_file
    create_once(path, {"cluster_id": str(uuid.uuid4())})
    try:
        return str((read_json(path) or {})["cluster_id"])
    except (RunDirError, KeyError):
        raise Refused(
            f'{path} is damaged: it should hold {{"cluster_id": "..."}}. The id is also in master.json and in spec.json of every '
            f"run ({home.runs}): write it there again; jobs that run are found by it"
        ) from None


def site_of(home: Home, file: Path | None) -> SiteConfig:
    """The site configuration in ``file``, or the first one found. Raises ConfigError."""
    return load_site(file or find_site(os.environ, home.root))
