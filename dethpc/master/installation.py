"""One master's installation: its home directory, its site configuration and its cluster id."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dethpc
from dethpc.client import release
from dethpc.config.site import SiteConfig, find_site, load_site
from dethpc.engine.queueing.pools import Rules
from dethpc.engine.state import BadNodePolicy
from dethpc.errors import Refused, RunDirError
from dethpc.master.experiments.own_storage import own
from dethpc.rundir import archives
from dethpc.rundir.files import create_once, read_json, sealed, write_json
from dethpc.rundir.files import names as names_in
from dethpc.rundir.home import Home
from dethpc.rundir.layout import RunDir

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Installation:
    home: Home
    site: SiteConfig
    cluster_id: str
    scheduler: str  # slurm or local
    started_at: float = field(default_factory=time.time)
    version: str = dethpc.__version__
    build: str = field(default_factory=release.build)
    listening: dict[str, object] = field(default_factory=dict)  # ``hosts``, and ``why`` there
    trouble: str = ""  # why this master does not get on at present, in words

    @property
    def cluster_name(self) -> str:
        return self.site.cluster_name

    @property
    def replaced(self) -> str:
        """What to do where another build was installed over the one that runs; "" where none was. Modules that are imported
        only now are the other build's."""
        if release.build() in ("", self.build):
            return ""
        return (
            "another build of dethpc was installed over the one that this master runs; det master down ends the master, and the "
            "next det starts the new one. Jobs go on meanwhile"
        )

    @property
    def checkpoint_storage(self) -> dict[str, Any]:
        """The section for experiments that have none: the site's, else a folder of this home."""
        named = self.site.checkpoint_storage
        if named is None or not named:
            return {"type": "shared_fs", "host_path": str(self.home.checkpoints)}
        return own(named, self.home, self.home.originals)  # a site file may have been copied with the home

    @property
    def serves(self) -> dict[str, str]:
        """Which scheduler, for master.json: a shell that is set up for another can then say so. ``kind``; ``slurm_conf`` where the
        environment names one; ``chosen``: where somebody said that it should be this kind."""
        scheduler = {
            "kind": self.scheduler,
            "slurm_conf": os.environ.get("SLURM_CONF", "") if self.scheduler == "slurm" else "",
            "slurm_clusters": os.environ.get("SLURM_CLUSTERS", "") if self.scheduler == "slurm" else "",
        }
        named = "DETHPC_SCHEDULER" if os.environ.get("DETHPC_SCHEDULER") else ""
        return {**scheduler, "chosen": named or ("the site configuration" if self.site.scheduler != "auto" else "")}

    @property
    def site_file(self) -> str | None:
        """None: there is none, and all is as it is by default."""
        return find_site(os.environ, self.home.root)

    @property
    def queue_rules(self) -> dict[str, Rules]:
        """By pool."""
        return {name: Rules(pool.scheduler, pool.window) for name, pool in self.site.pools.items()}

    @property
    def bad_nodes(self) -> BadNodePolicy:
        bad = self.site.bad_nodes
        return BadNodePolicy(bad.failures, bad.within_hours * 3600, bad.exclude_hours * 3600)


def cluster_id(home: Home) -> str:
    """A uuid, made once per home. A file that is missing or damaged is written again: jobs that run are found by the id.

    Raises Refused where nothing says which one it was, and in a home that is a copy of another, or may be one.
    """
    path = home.cluster_file
    try:
        cluster = read_json(path) or {}
    except RunDirError:
        cluster = {}
    if not isinstance(cluster.get("cluster_id"), str):
        cluster = {"cluster_id": _known_elsewhere(home) or _new_id(home), "home": str(home.root)}
        if not path.exists():
            create_once(path, sealed(cluster))  # two may start at once
            cluster = read_json(path) or cluster
        else:
            write_json(path, sealed(cluster))
            log.warning("%s was damaged; it is written again with the id %s", path, cluster["cluster_id"])
    if (original := home.copied_from()) is not None:
        raise copy_refused(home, original)
    if not cluster.keys() & {"copied_from", "home"} and (originals := _originals(home, str(cluster["cluster_id"]))):
        cluster["copied_from"] = originals  # as an earlier release's message said to make it a home of its own
    here = {"home": str(home.root), "inode": home.root.stat().st_ino}
    if cluster.get("home", here["home"]) != here["home"] and cluster.get("inode", here["inode"]) != here["inode"]:
        raise _moved_or_copied(home, cluster)
    if any(cluster.get(name) != value for name, value in here.items()):
        write_json(path, sealed({**cluster, **here}))
    return str(cluster["cluster_id"])


def _moved_or_copied(home: Home, cluster: dict[str, Any]) -> Refused:
    """For a folder that is another one than the home of before, which is not there at present: it may be mounted again later."""
    moved = json.dumps({name: value for name, value in cluster.items() if name != "inode"} | {"home": str(home.root)})
    return Refused(
        f"{home.root} was copied from {cluster['home']}, which is not there now; served by two masters, both would take the same "
        f"jobs and checkpoints for their own. If it was moved here and will not come back: {_writing(home, moved)}. "
        "If this is a copy, make it a home of its own, which only reads the other's checkpoints: "
        f"{_independent(home, Path(cluster['home']))}"
    )


def copy_refused(home: Home, original: Path) -> Refused:
    return Refused(
        f"{home.root} is a copy of {original}, which is still there: a master of each would take the other's jobs for its own. "
        f"Use {original}, or move it away. To make the copy a home of its own, which knows nothing of jobs that run now and "
        f"only reads the checkpoints of {original}, give it another id: "
        f"{_independent(home, original)}"
    )


def _independent(home: Home, original: Path) -> str:
    """The command that makes a copy of ``original`` a home of its own."""
    originals = dict.fromkeys([str(original), *map(str, home.originals)])
    return _writing(home, json.dumps({"cluster_id": str(uuid.uuid4()), "copied_from": list(originals)}))


def _writing(home: Home, content: str) -> str:
    return f"echo {shlex.quote(content)} > {shlex.quote(str(home.cluster_file))}"


def _originals(home: Home, cluster_id: str) -> list[str]:
    """The home of the last master that wrote a specification here under another id: the home that this one was copied from."""
    for path in map(_spec, sorted(home.runs / name for name in names_in(home.runs))):
        with contextlib.suppress(RunDirError, OSError):
            spec = read_json(path) or {}
            master_file = spec.get("master_file")
            if spec.get("cluster_id") not in (None, cluster_id) and isinstance(master_file, str):
                original = Path(master_file).parent
                if original != home.root:
                    return [str(original)]
    return []


def _known_elsewhere(home: Home) -> str | None:
    """The id that the last master wrote down, or that jobs have been told."""
    for path in (home.master_file, *map(_spec, sorted(home.runs / name for name in names_in(home.runs)))):
        with contextlib.suppress(RunDirError, OSError):
            identifier = (read_json(path) or {}).get("cluster_id")
            if isinstance(identifier, str) and identifier:
                return identifier
    return None


def _spec(path: Path) -> Path:
    """That of a run, or of the first run that is folded into an archive."""
    runs = archives.runs_of(path.name)
    return RunDir(path / runs[0] if runs else path).spec


def _new_id(home: Home) -> str:
    if names_in(home.runs):
        raise Refused(
            f'{home.cluster_file} is missing or damaged. It should hold {{"cluster_id": "..."}}, and neither master.json nor the '
            f"spec.json of any run in {home.runs} says which id it was. Restore one of them from a backup"
        )
    return str(uuid.uuid4())


def site_of(home: Home, file: Path | None) -> SiteConfig:
    """The site configuration in ``file``, or the first one found. Raises ConfigError."""
    return load_site(file or find_site(os.environ, home.root))
