"""``get_cluster_info()``: a task's information about itself and its cluster.

The node's task process writes one JSON file per node and names it in ``DETHPC_INFO``::

    {"master_url": str | null, "master_file": str | null, "master_cert_file": str | null,
     "cluster_id": str, "agent_id": str, "slot_ids": [..],
     "task_id": str, "allocation_id": str, "session_token": str, "worker_secret": str, "task_type": "TRIAL",
     "latest_checkpoint": uuid | null,
     "trial": {"trial_id", "experiment_id", "trial_seed", "hparams", "config", "steps_completed", "trial_run_id",
               "debug": false, "inter_node_network_interface": null,
               "search": {"length": n} | {"lengths": [n, ..]} | absent},   the trial's targets, where the search sets them
     "rendezvous": {"container_addrs": [..], "container_rank": r, "container_slot_counts": [..]},
     "resources": {"gpu_uuids": [..]},
     "ports": {"core": [port, port]},                free ports of the chief's node
     "experiment_uuid": str,                         which the manifests of its checkpoints name
     "checkpoint_storage": {..} | absent,            else that of the experiment's configuration
     "folders": {"scratch": path, "sockets": path},  of the attempt alone, on its node
     "slurm_job_id": str | null,                     whose processes are the trial's
     "stop_at": epoch seconds | absent}              when to checkpoint and leave, before the job's time limit

It lies in the attempt's directory, so that the journal and the stop file are found beside it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from dethpc.domain.trial_config import UNITS, SearcherConfig, TrialConfig
from dethpc.util import merge_dicts

if TYPE_CHECKING:
    from dethpc.storage.ownership import Owner

INFO_VARIABLE = "DETHPC_INFO"


class RendezvousInfo:
    """Where the containers (nodes) of this attempt are; the launchers start from it."""

    def __init__(self, container_addrs: List[str], container_rank: int, container_slot_counts: List[int]) -> None:
        self.container_addrs = container_addrs
        self.container_rank = container_rank
        self.container_slot_counts = container_slot_counts


class TrialInfo:
    """The trial that this task trains."""

    def __init__(
        self,
        trial_id: int,
        experiment_id: int,
        trial_seed: int,
        hparams: Dict[str, Any],
        config: Dict[str, Any],
        steps_completed: int,
        trial_run_id: int,
        debug: bool = False,
        inter_node_network_interface: Optional[str] = None,
        search: Optional[Dict[str, Any]] = None,
    ) -> None:
        #: Id of the trial.
        self.trial_id = trial_id
        #: Id of its experiment.
        self.experiment_id = experiment_id
        #: Seed that the trial should use for everything random.
        self.trial_seed = trial_seed
        #: The hyperparameters that the searcher chose, nested as in the configuration.
        self.hparams = hparams
        self._effective = config
        # Private, as in Determined: the configuration's shape may change between versions.
        self._config = _with_length(config)
        self._steps_completed = steps_completed
        self._trial_run_id = trial_run_id
        self._debug = debug
        self._inter_node_network_interface = inter_node_network_interface
        self._search = search or {}

    @property
    def _settings(self) -> TrialConfig:
        """The configuration, typed."""
        return TrialConfig.from_json(self._effective)


def _with_length(config: Dict[str, Any]) -> Dict[str, Any]:
    """With the ``searcher.max_length`` of older configurations beside the ``max_time`` that it has become: published training code
    computes schedules from it."""
    searcher = SearcherConfig.of(config)
    if searcher.time_metric not in UNITS or searcher.max_time is None or searcher.max_length is not None:
        return config
    return merge_dicts(config, {"searcher": {"max_length": {searcher.time_metric: searcher.max_time}}})


class ResourcesInfo:
    """The devices of this node that belong to the task."""

    def __init__(self, gpu_uuids: List[str]) -> None:
        self._gpu_uuids = gpu_uuids

    @property
    def gpu_uuids(self) -> List[str]:
        """UUIDs of the GPUs, in the order of the slots."""
        return self._gpu_uuids


class ClusterInfo:
    """Everything that the cluster told this task.

    Training code that leans on it does not run outside the cluster, where :func:`get_cluster_info` returns None; use it for
    hyperparameters, the checkpoint to resume from, and for launchers of your own.
    """

    def __init__(
        self,
        master_url: str,
        cluster_id: str,
        agent_id: str,
        slot_ids: List[int],
        task_id: str,
        allocation_id: str,
        session_token: str,
        task_type: str,
        master_cert_name: Optional[str] = None,
        master_cert_file: Optional[str] = None,
        latest_checkpoint: Optional[str] = None,
        trial_info: Optional[TrialInfo] = None,
        rendezvous_info: Optional[RendezvousInfo] = None,
        resources_info: Optional[ResourcesInfo] = None,
    ) -> None:
        #: Address of the master, or "" when the attempt started without one.
        self.master_url = master_url
        #: Id of the cluster (the installation).
        self.cluster_id = cluster_id
        #: Name of this node.
        self.agent_id = agent_id
        #: Slots of this node that belong to the task.
        self.slot_ids = slot_ids
        #: Id of the task; the same for all runs of a trial.
        self.task_id = task_id
        #: Id of this attempt.
        self.allocation_id = allocation_id
        #: Token that is good for this run alone.
        self.session_token = session_token
        #: "TRIAL", "NOTEBOOK", "SHELL", "COMMAND", "TENSORBOARD" or "CHECKPOINT_GC".
        self.task_type = task_type
        #: Name in the master's TLS certificate, if it differs from its address.
        self.master_cert_name = master_cert_name
        #: File of the TLS certificate that the master made, for programs other than dethpc's.
        self.master_cert_file = master_cert_file
        self._latest_checkpoint = latest_checkpoint
        self._trial_info = trial_info
        self._rendezvous_info = rendezvous_info
        self._resources_info = resources_info
        self._master_file: Optional[str] = None
        self._ports: Dict[str, List[int]] = {}
        self._checkpoint_storage: Optional[Dict[str, Any]] = None
        self._stop_at: Optional[float] = None
        self._folders: Dict[str, str] = {}
        self._worker_secret = ""
        self._experiment_uuid = ""
        self._attempt_dir: Optional[Path] = None

    @classmethod
    def _from_json(cls, data: Mapping[str, Any], attempt_dir: Path) -> ClusterInfo:
        trial, rendezvous, resources = data.get("trial"), data.get("rendezvous"), data.get("resources")
        info = cls(
            master_url=data.get("master_url") or "",
            cluster_id=data.get("cluster_id") or "",
            agent_id=data.get("agent_id") or "",
            slot_ids=list(data.get("slot_ids") or []),
            task_id=data.get("task_id") or "",
            allocation_id=data["allocation_id"],
            session_token=data.get("session_token") or "",
            task_type=data.get("task_type") or "TRIAL",
            master_cert_name=data.get("master_cert_name"),
            master_cert_file=data.get("master_cert_file"),
            latest_checkpoint=data.get("latest_checkpoint"),
            trial_info=TrialInfo(**trial) if trial else None,
            rendezvous_info=RendezvousInfo(**rendezvous) if rendezvous else None,
            resources_info=ResourcesInfo(**resources) if resources else None,
        )
        info._master_file = data.get("master_file")
        info._ports = dict(data.get("ports") or {})
        info._checkpoint_storage = data.get("checkpoint_storage")
        info._stop_at = data.get("stop_at")
        info._folders = dict(data.get("folders") or {})
        info._worker_secret = data.get("worker_secret") or info.session_token
        info._experiment_uuid = data.get("experiment_uuid") or ""
        info._attempt_dir = attempt_dir
        return info

    def _folder(self, name: str) -> Optional[Path]:
        """A folder that is this attempt's alone, if this process is on the node that has it."""
        from dethpc.rundir.scratch import is_own

        path = self._folders.get(name)
        return Path(path) if path and is_own(path) else None

    @property
    def _owner(self) -> Optional[Owner]:
        """Whom the checkpoints of this trial name; None where a master of before has not said which experiment it is."""
        from dethpc.storage.ownership import Owner

        if not (self.cluster_id and self._experiment_uuid):
            return None
        return Owner(self.cluster_id, self._experiment_uuid, self.trial.experiment_id, self.trial.trial_id)

    @property
    def _spool(self) -> Optional[str]:
        """The folder in which checkpoints wait for their storage, which every machine sees."""
        return self._folders.get("spool")

    @property
    def latest_checkpoint(self) -> Optional[str]:
        """The checkpoint to resume from, or None for a fresh start. Always None for tasks that are not trials."""
        return self._latest_checkpoint if self.task_type == "TRIAL" else None

    @property
    def user_data(self) -> Dict[str, Any]:
        """The ``data`` section of the experiment's configuration; empty for tasks that are not trials."""
        return self.trial._settings.data if self.task_type == "TRIAL" else {}

    @property
    def trial(self) -> TrialInfo:
        """Raises RuntimeError when the task is not a trial."""
        if self.task_type != "TRIAL" or self._trial_info is None:
            raise RuntimeError(f"info.trial exists only in tasks of type TRIAL; this one is {self.task_type!r}")
        return self._trial_info

    @property
    def container_addrs(self) -> List[str]:
        """Addresses of the attempt's nodes, by node rank."""
        return self._rendezvous_info.container_addrs if self._rendezvous_info else ["127.0.0.1"]

    @property
    def container_slot_counts(self) -> List[int]:
        """Slots per node, by node rank."""
        return self._rendezvous_info.container_slot_counts if self._rendezvous_info else [len(self.slot_ids)]

    @property
    def container_rank(self) -> int:
        """Rank of this node. A training framework may number the nodes differently."""
        return self._rendezvous_info.container_rank if self._rendezvous_info else 0

    @property
    def gpu_uuids(self) -> List[str]:
        """UUIDs of this node's GPUs that belong to the task."""
        return self._resources_info.gpu_uuids if self._resources_info else []


_loaded: Tuple[Optional[str], Optional[ClusterInfo]] = (None, None)


def get_cluster_info() -> Optional[ClusterInfo]:
    """The :class:`ClusterInfo` of the task that this process belongs to, or None outside the cluster, and in a Slurm job of its own
    that code of a task has submitted: sbatch hands the environment on.

    Raises RuntimeError when ``DETHPC_INFO`` names a file that cannot be read: training as if outside the cluster would lose
    everything that the trial reports.
    """
    global _loaded
    path = os.environ.get(INFO_VARIABLE) or None
    if path != _loaded[0]:
        _loaded = (path, _read(Path(path)) if path else None)
    return _loaded[1]


def _read(path: Path) -> Optional[ClusterInfo]:
    try:
        content = json.loads(path.read_bytes())
        job, here = content.get("slurm_job_id"), os.environ.get("SLURM_JOB_ID")
        if job and here and job != here:
            sys.stderr.write(
                f"dethpc: Slurm job {here} was submitted by code of {content['task_id']}, which job {job} trains; this "
                "process is not part of that trial, and runs as outside the cluster\n"
            )
            return None
        return ClusterInfo._from_json(content, path.parent)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RuntimeError(f"{INFO_VARIABLE}={path} cannot be read: {error!r}") from error
