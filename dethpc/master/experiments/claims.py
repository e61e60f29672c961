"""Which checkpoints an experiment owns, according to rows and run directories; storages check it before they delete or serve it."""

from __future__ import annotations

from dethpc.domain.facts import Checkpoint, Experiment
from dethpc.domain.states import TaskKind
from dethpc.errors import RunDirError
from dethpc.rundir.files import read_json
from dethpc.rundir.home import Home
from dethpc.storage.ownership import Claim


class Claims:
    """Of the experiments of a home. It remembers what it has read of runs: make one for each use."""

    def __init__(self, home: Home, cluster_id: str) -> None:
        self._home, self._cluster_id = home, cluster_id
        self._runs: dict[str, bool] = {}

    def of(self, experiment: Experiment, checkpoint: Checkpoint) -> Claim:
        """What the experiment says to a storage that is to delete one of its checkpoints, or to serve it to its run."""
        return Claim(self._cluster_id, experiment.queue_id, self._published(experiment, checkpoint))

    def _published(self, experiment: Experiment, checkpoint: Checkpoint) -> bool:
        """Whether the checkpoint is known to be the experiment's though its manifest may name nobody: a run published it whose
        release wrote no owners, or a script outside of the cluster reported it with the owner's token.

        Rows that were imported prove nothing: of a run that comes from elsewhere there is no specification here.
        """
        if experiment.kind is TaskKind.UNMANAGED_TRIAL:
            return not experiment.imported_run
        if checkpoint.run_id not in self._runs:
            self._runs[checkpoint.run_id] = self._wrote_no_owners(checkpoint.run_id)
        return self._runs[checkpoint.run_id]

    def _wrote_no_owners(self, run_id: str) -> bool:
        try:
            spec = read_json(self._home.find(run_id).spec) or {}
        except (OSError, RunDirError):
            return False
        return spec.get("cluster_id") == self._cluster_id and not spec.get("owned")
