"""Where everything of one user stands: the layout of ``DETHPC_HOME``."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

from dethpc.rundir.layout import RunDir


class Home:
    """One folder on shared_fs that holds all of a user's state, so that two installations never meet."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).expanduser().absolute()

    def make(self) -> None:
        """Create the folders, 0700."""
        for folder in (self.root, self.log.parent, self.experiments, self.runs, self.checkpoints):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self.root, 0o700)

    @property
    def token(self) -> Path:
        return self.root / "token"

    @property
    def master_file(self) -> Path:
        return self.root / "master.json"

    @property
    def database_url(self) -> str:
        return f"sqlite:///{self.root / 'dethpc.db'}"

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

    def keep_context(self, targz: bytes) -> str:
        """Store a context; returns its SHA-256. It is whole on disk when this returns."""
        sha256 = hashlib.sha256(targz).hexdigest()
        path = self.context(sha256)
        if not path.exists():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            staged = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
            with open(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(targz)
                file.flush()
                os.fsync(file.fileno())
            staged.replace(path)
        return sha256

    @property
    def node_changes(self) -> Path:
        """What was held against nodes, one committed row a line."""
        return self.root / "nodes.jsonl"

    @property
    def records(self) -> Path:
        """Users, tokens and whatever else no decision reads, one committed row a line."""
        return self.root / "records.jsonl"

    def changes(self, experiment_id: int) -> Path:
        """The master's decisions about an experiment, one committed row a line."""
        return self.experiment(experiment_id) / "changes.jsonl"
