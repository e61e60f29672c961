"""How the last master reached its scheduler, stored in the home: the next master may start in a shell without that scheduler's
environment."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dethpc.rundir.files import read_object, sealed, write_json
from dethpc.rundir.home import Home

_NAMED = {"slurm_conf": "SLURM_CONF", "slurm_clusters": "SLURM_CLUSTERS"}


@dataclass(frozen=True)
class SchedulerSettings:
    """``kind``: slurm or local; "" where nothing is remembered. ``commands``: the folder of sbatch. ``host``: of the master."""

    kind: str = ""
    slurm_conf: str = ""
    slurm_clusters: str = ""
    commands: str = ""
    host: str = ""

    @classmethod
    def read(cls, home: Home) -> SchedulerSettings:
        """Of the last master; one of an earlier release said so in master.json."""
        settings = read_object(home.scheduler_file)
        if not settings:
            lease = home.own_master()
            scheduler = lease.get("scheduler")
            settings = {**scheduler, "host": lease.get("host")} if isinstance(scheduler, dict) else {}
        return cls(*(str(settings.get(name) or "") for name in cls.__dataclass_fields__))

    @classmethod
    def of_this_process(cls, kind: str, env: Mapping[str, str] = os.environ) -> SchedulerSettings:
        host = socket.gethostname()
        if kind != "slurm":
            return cls(kind, host=host)
        sbatch = shutil.which("sbatch", path=env.get("PATH"))
        named = {field: env.get(variable, "") for field, variable in _NAMED.items()}
        return cls(kind, **named, commands=os.path.dirname(os.path.abspath(sbatch)) if sbatch else "", host=host)

    def write(self, home: Home) -> None:
        """Raises OSError."""
        before = SchedulerSettings.read(home)
        settings: dict[str, Any] = asdict(self)
        if self.kind == before.kind == "slurm" and not self.commands:
            settings["commands"] = before.commands  # this shell has none: that is no news of where they are
        if read_object(home.scheduler_file) != settings:
            write_json(home.scheduler_file, sealed(settings))

    @property
    def is_gone(self) -> bool:
        """Whether the cluster's configuration was removed, as that of a private Slurm is with it."""
        return bool(self.slurm_conf) and not os.path.exists(self.slurm_conf)

    def lend(self, env: MutableMapping[str, str], *, whole: bool) -> None:
        """Reach Slurm as before: where ``env`` has no sbatch, and ``whole`` where it has one of another cluster."""
        has_sbatch = shutil.which("sbatch", path=env.get("PATH")) is not None
        if not has_sbatch and self.commands and (Path(self.commands) / "sbatch").exists():
            env["PATH"] = os.pathsep.join(filter(None, [env.get("PATH", ""), self.commands]))
        if self.is_gone or (has_sbatch and not whole):
            return
        for field, variable in _NAMED.items():
            before = getattr(self, field)
            if whole:
                env.pop(variable, None)
            if before:
                env.setdefault(variable, before)

    def is_same_as(self, other: SchedulerSettings) -> bool:
        """Whether both reach one scheduler, as far as these settings say."""
        if self.kind != other.kind or not self.kind:
            return False
        if self.kind == "local":
            return self.host == other.host
        mine, others = (os.path.realpath(conf) if conf else "" for conf in (self.slurm_conf, other.slurm_conf))
        return mine == others and self.slurm_clusters == other.slurm_clusters
