"""Specification of a run for its nodes (``spec.json``). The master writes it once, before the job is submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, NamedTuple, Optional, Sequence, Union

from dethpc.domain.trial_config import BindMount, TrialConfig
from dethpc.errors import RunDirError
from dethpc.rundir.home import Home

VERSION = 1

TRIAL = "trial"
"""The ``kind`` of runs that have a trial, and of the master's own."""


class Spec(NamedTuple):
    """One run of a trial. Paths are absolute and lie on shared_fs.

    ``slots`` is the total over all nodes; 0 means one process on one node, without an accelerator.
    ``num_nodes`` 0: as many as Slurm gives the job.
    ``latest_checkpoint`` and ``steps_completed`` are where the trial stood when the run was submitted; a later
    attempt of the run may find more in the journals of earlier ones. ``checkpoints`` are the trial's own that it may go on
    from, latest first: ``uuid``, ``steps_completed`` and, where it is not ``checkpoint_storage``, the ``storage`` of each;
    ``source_checkpoint`` is whose weights it starts from where none of them is left. ``grace`` is in seconds. ``token`` is
    good for this run alone and stands nowhere else in clear; ``worker_secret`` is for its nodes and workers among each other and
    never travels (runs that an earlier release submitted have none). ``queue_id`` is the uuid of its experiment: numbers can come
    twice when a database is lost, this cannot. ``owned``: the manifests of its checkpoints name their experiment, which those of
    runs that an earlier release prepared do not. ``search`` is what the search keeps of the trial; its ``lengths``, where it has
    them, are how long the trial shall train, in the searcher's unit, increasing. ``venv`` is the folder of the experiment's own
    Python environment, "" where it wants none; ``venv_at_need`` where it gets one should pip in its hook install anything;
    ``det_prefix`` the ``sys.prefix`` of the interpreter that serves det, which no job
    changes. ``trial_dir`` is the trial's folder, which stays over its attempts; "" where the run is of no trial.
    ``container``: ``{"runtime", "image", "links"}`` of a run in one, where ``links`` are pairs of a path inside and the
    ``container_path`` in the working directory that leads there; {} without a container. ``services`` are what the master's proxy
    reaches on the first node, each ``{"port", "kind", ...}``; ``exec.relay`` states them. ``kind`` is that of its task, such as
    ``command``; ``work_dir`` is where its entrypoint starts, "" for the folder with the context; ``details`` are what its
    kind alone has.
    """

    cluster_id: str
    cluster_name: str
    master_file: str
    run: str
    experiment_id: int
    trial_id: int
    task_id: str
    run_number: int
    trial_seed: int
    hparams: dict[str, Any]
    config: dict[str, Any]
    entrypoint: Union[str, list[str]]
    context: str
    context_sha256: str
    token: str
    worker_secret: str = ""
    master_url: Optional[str] = None
    slots: int = 0
    num_nodes: int = 1
    slots_per_node: int = 0
    slot_type: str = "cpu"
    queue_id: str = ""
    owned: bool = False
    latest_checkpoint: Optional[str] = None
    steps_completed: int = 0
    checkpoints: Sequence[Mapping[str, Any]] = []
    source_checkpoint: Optional[str] = None
    restarts: int = 0
    owner: str = ""
    environment: Mapping[str, str] = {}
    harness: str = ""
    checkpoint_storage: Mapping[str, Any] = {}
    storage_worked: bool = False  # a trial of the experiment has saved a checkpoint
    search: Mapping[str, Any] = {}
    rendezvous_timeout: float = 300
    grace: Optional[float] = None
    venv: str = ""
    venv_at_need: str = ""
    det_prefix: str = ""
    trial_dir: str = ""
    container: Mapping[str, Any] = {}
    services: Sequence[Mapping[str, Any]] = []
    kind: str = TRIAL
    work_dir: str = ""
    details: Mapping[str, Any] = {}
    version: int = VERSION

    @classmethod
    def from_json(cls, obj: dict[str, Any]) -> Spec:
        """Fields that this version does not know are left aside. Raises: RunDirError when one is missing or the file
        is of a later version."""
        if obj.get("version", VERSION) != VERSION:
            raise RunDirError(f"spec.json is of version {obj.get('version')}; this harness reads version {VERSION}")
        try:
            return cls(**{name: value for name, value in obj.items() if name in cls._fields})
        except TypeError as error:
            raise RunDirError(f"spec.json is incomplete: {error}") from None

    @property
    def among_workers(self) -> str:
        """The secret of nodes and workers. A run of an earlier release ends as it began: with its token in that place."""
        return self.worker_secret or self.token

    @property
    def spool(self) -> Path:
        """Where checkpoints wait for a storage that is away."""
        return Home(Path(self.master_file).parent).spool

    @property
    def mounts(self) -> Sequence[BindMount]:
        """What the working directory has links to: in a container to where the mounts are inside."""
        if not self.container:
            return self.settings.bind_mounts
        return [BindMount(str(place), str(path)) for place, path in self.container.get("links") or ()]

    @property
    def settings(self) -> TrialConfig:
        """The configuration, typed."""
        return TrialConfig.from_json(self.config)

    def to_json(self) -> dict[str, Any]:
        return self._asdict()
