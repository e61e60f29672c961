"""Where everything of one user stands: the layout of ``DETHPC_HOME``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Mapping, Optional, Union

from dethpc.rundir.layout import RunDir


def named_home(env: Optional[Mapping[str, str]] = None) -> Optional[Path]:
    """The folder that ``$DETHPC_HOME`` names, if it names one. It need not exist."""
    named = (os.environ if env is None else env).get("DETHPC_HOME")
    return Path(named).expanduser() if named else None


def home(env: Optional[Mapping[str, str]] = None) -> Path:
    """The folder of all of a user's state: ``$DETHPC_HOME``, else ``~/.dethpc``. It need not exist."""
    return named_home(env) or Path.home() / ".dethpc"


class Home:
    """One folder on shared_fs that holds all of a user's state, so that two installations never meet."""

    def __init__(self, root: Union[Path, str]) -> None:
        self.root = Path(root).expanduser().absolute()

    def make(self) -> None:
        """Create the folders, 0700."""
        for folder in (self.root, self.log.parent, self.experiments, self.runs, self.checkpoints):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self.root, 0o700)

    @property
    def token(self) -> Path:
        """The owner's key to the master."""
        return self.root / "token"

    @property
    def cluster_file(self) -> Path:
        """``{"cluster_id"}``: what tells this home from others."""
        return self.root / "cluster.json"

    @property
    def master_file(self) -> Path:
        """The master's address and lease."""
        return self.root / "master.json"

    @property
    def database(self) -> Path:
        return self.root / "dethpc.db"

    @property
    def database_url(self) -> str:
        return f"sqlite:///{self.database}"

    @property
    def database_in_the_making(self) -> Path:
        """What ``det master rebuild`` fills. It becomes the database in one step, when it is whole."""
        return self.root / "dethpc.db.new"

    @property
    def rebuilding(self) -> Path:
        """There while a rebuild fills a database that cannot be filled beside and renamed."""
        return self.root / "rebuilding.json"

    @property
    def losses(self) -> Path:
        """``{"at", "experiments", "runs"}``: what the last rebuild found files of, but could not recreate."""
        return self.root / "rebuilt.json"

    @property
    def log(self) -> Path:
        return self.root / "log" / "master.log"

    @property
    def experiments(self) -> Path:
        return self.root / "experiments"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def run(self, run_id: str) -> RunDir:
        return RunDir(self.runs / run_id)

    def experiment(self, experiment_id: int) -> Path:
        return self.experiments / str(experiment_id)

    def context(self, sha256: str) -> Path:
        """Contexts are named by their content: experiments that share code share the file."""
        return self.root / "contexts" / f"{sha256}.tar.gz"

    @property
    def node_changes(self) -> Path:
        """What was held against nodes, one committed row a line."""
        return self.root / "nodes.jsonl"

    @property
    def announced(self) -> Path:
        """Ids of the experiments whose files of changes the master was about to write last, one a line."""
        return self.root / "changing"

    @property
    def records(self) -> Path:
        """Users, tokens and whatever else no decision reads, one committed row a line."""
        return self.root / "records.jsonl"

    @property
    def task_changes(self) -> Path:
        """The master's decisions about tasks that belong to no experiment, one committed row a line."""
        return self.root / "tasks.jsonl"

    def changes(self, experiment_id: int) -> Path:
        """The master's decisions about an experiment, one committed row a line."""
        return self.experiment(experiment_id) / "changes.jsonl"
