"""From a run that is wanted to a job that can be submitted: its shape on the cluster, its directory, its script."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dethpc.config.site import PoolConfig, SiteConfig, seconds
from dethpc.domain.facts import Experiment, Run, Trial
from dethpc.domain.ids import job_name, task_id
from dethpc.domain.ports import JobRequest, PoolInfo
from dethpc.engine import events, nodes
from dethpc.engine.waiting import ResourceRequest, infeasible
from dethpc.errors import ConfigError, Problem, RunDirError, SubmitRejected
from dethpc.master.durable.ledger import Ledger
from dethpc.master.http.auth import digest, mint_run_token
from dethpc.master.runs.cluster_view import PLAN, ClusterView
from dethpc.rundir.files import read_json, write_json
from dethpc.rundir.home import Home
from dethpc.rundir.spec import Spec
from dethpc.scheduler.slurm.script import Resources, ScriptInput, render

# Of the master's own environment nothing that names another job, another master or a secret goes along.
_NOT_FOR_JOBS = ("DET_", "DETHPC_", "SLURM_", "SLURMD_", "SBATCH_", "PMI", "OMPI_", "PRTE_")

_NAMES_NODES = re.compile(r"(?:^|\s)(?:-[wxF]|--(?:nodelist|nodefile|exclude)\b)")


@dataclass(frozen=True, slots=True)
class Shape:
    """How many nodes, and how many slots on each."""

    nodes: int
    slots_per_node: int
    slot_type: str


def shape(slots: int, per_node: int, slot_type: str, *, single_node: bool = False) -> Shape:
    """Spread ``slots`` evenly over as few nodes as hold them. Raises ValueError when that cannot be done.

    ``per_node``: slots of one node; 0 when unknown, then all slots are asked of one node.
    """
    if slots <= max(1, per_node) or per_node == 0:
        return Shape(1, slots, slot_type)
    if single_node:
        raise ValueError(f"{slots} slots on a single node; the largest node has {per_node}")
    if slots % per_node:
        raise ValueError(
            f"{slots} slots on nodes of {per_node} slots each; use a multiple of {per_node}, or set slurm.slots_per_node"
        )
    return Shape(slots // per_node, per_node, slot_type)


class JobBuilder:
    """Knows the site. ``prepare`` may be called again for the same run: it writes the same directory."""

    def __init__(
        self,
        home: Home,
        site: SiteConfig,
        scheduler_kind: str,
        view: ClusterView,
        ledger: Ledger,
        cluster_id: str,
        harness: Path,
        checkpoint_seconds: Callable[[int], Sequence[float]],
    ) -> None:
        """``checkpoint_seconds``: how long saving the latest checkpoints of an experiment took."""
        self._checkpoint_seconds = checkpoint_seconds
        self._home, self._site, self._view, self._ledger = home, site, view, ledger
        self._use_srun = scheduler_kind == "slurm"
        self._cluster_id, self._harness = cluster_id, harness
        self._environment = job_environment()

    # --- the cluster's shape

    def pools(self) -> list[PoolInfo]:
        """As they were in the last minutes. Raises SchedulerUnavailable."""
        return self._view.pools(PLAN)

    def default_pool(self) -> str:
        pools = self._view.pools(PLAN)
        return next((pool.name for pool in pools if pool.default), pools[0].name if pools else "default")

    def check(self, config: Mapping[str, Any]) -> None:
        """Refuse at once what could never start. Raises ConfigError."""
        pools = self._view.pools(PLAN)
        resources = config["resources"]
        name, usable = resources["resource_pool"], ", ".join(pool.name for pool in pools if pool.nodes)
        pool = next((pool for pool in pools if pool.name == name), None)
        if pool is None:
            raise ConfigError([Problem("resources.resource_pool", repr(name), f"one of {usable}")])
        if not pool.nodes:
            found_pool = f"{name!r}, whose partition {pool.partition!r} has no nodes"
            raise ConfigError([Problem("resources.resource_pool", found_pool, f"one of {usable}")])
        try:
            found = self._shape(config)
        except ValueError as error:
            raise ConfigError(
                [Problem("resources.slots_per_trial", str(error), "a number that fits the nodes")]
            ) from None
        impossible = infeasible(self._asked(config, found), self._view.pool(name))
        if impossible is not None:
            raise ConfigError([Problem(impossible.field, impossible.why, impossible.sooner)])
        slots, most = int(resources["slots_per_trial"]), resources.get("max_slots")
        if most is not None and most < slots:
            raise ConfigError([Problem("resources.max_slots", str(most), f"at least the {slots} slots of one trial")])
        self._script(Path("/run"), "check", config, found)

    def asked(self, config: Mapping[str, Any]) -> ResourceRequest:
        """What a trial of the experiment asks of its pool. Raises SchedulerUnavailable, and ValueError where it fits no node."""
        return self._asked(config, self._shape(config))

    def _asked(self, config: Mapping[str, Any], found: Shape) -> ResourceRequest:
        name = config["resources"]["resource_pool"]
        pool, slots = self._site_pool(name), max(1, found.slots_per_node)
        options = [*pool.sbatch_args, *((config.get("slurm") or {}).get("sbatch_args") or [])]
        return ResourceRequest(
            pool=name,
            nodes=found.nodes,
            slots_per_node=found.slots_per_node,
            slot_type=found.slot_type,
            time_limit=time_asked(options) or pool.time_min_seconds or pool.time_limit_seconds,
            cpus_per_node=_cores(pool, slots, config.get("slurm") or {}),
            memory_per_node_mb=slots * _megabytes(pool.mem_per_slot or "0M"),
        )

    def _shape(self, config: Mapping[str, Any]) -> Shape:
        resources, slurm = config["resources"], config.get("slurm") or {}
        name = resources["resource_pool"]
        pools, nodes = self._view.pools(PLAN), self._view.nodes(PLAN)
        site_pool = self._site_pool(name)
        slot_type = next((pool.slot_type for pool in pools if pool.name == name), "cpu")
        largest = max((node.slots for node in nodes if name in node.pools), default=0)
        per_node = slurm.get("slots_per_node") or site_pool.slots_per_node or largest
        return shape(
            int(resources["slots_per_trial"]),
            int(per_node),
            slot_type,
            single_node=bool(resources.get("is_single_node")),
        )

    def _site_pool(self, name: str) -> PoolConfig:
        pool = self._site.pools.get(name) or PoolConfig()
        return pool if pool.partition else pool.model_copy(update={"partition": name})

    # --- the run directory

    def prepare(self, runs: Sequence[Run]) -> dict[str, JobRequest | SubmitRejected]:
        """The jobs of several runs, by run id; for a run that can never be submitted the reason why.

        All their tokens are committed together, before any directory is written. Raises SchedulerUnavailable, OSError.
        """
        state = self._ledger.state
        tokens = {run.id: self._token(run) for run in runs}
        announced = [self._ledger.post(events.Prepared(id, digest(token), time.time())) for id, token in tokens.items()]
        for future in announced:
            future.result()
        costs = {id: checkpoint_cost(self._checkpoint_seconds(id)) for id in {run.experiment_id for run in runs}}
        jobs: dict[str, JobRequest | SubmitRejected] = {}
        for run in runs:
            trial = state.trial(run.trial_id)
            assert trial is not None
            experiment = state.experiments[run.experiment_id].row
            try:
                jobs[run.id] = self.write(run, trial, experiment, tokens[run.id], checkpoint=costs[run.experiment_id])
            except (ValueError, ConfigError) as error:
                jobs[run.id] = SubmitRejected(str(error))
        return jobs

    def _token(self, run: Run) -> str:
        with contextlib.suppress(RunDirError):  # a damaged one is written anew: no job has it yet
            if earlier := read_json(self._home.run(run.id).spec):
                return str(earlier["token"])
        return mint_run_token(run.id)[0]

    def write(
        self,
        run: Run,
        trial: Trial,
        experiment: Experiment,
        token: str,
        *,
        self_requeue: bool = False,
        checkpoint: float = 0.0,
    ) -> JobRequest:
        """Write the run directory. ``checkpoint``: seconds that saving one takes. Raises ValueError, ConfigError, OSError."""
        run_dir = self._home.run(run.id)
        run_dir.make()
        found = self._shape(experiment.config)
        name = job_name(self._cluster_id, run.id)
        left_out = self._left_out(-1 if self_requeue else trial.id, experiment.config, found)
        script = self._script(
            run_dir.path,
            name,
            experiment.config,
            found,
            left_out,
            nice=run.nice or None,
            self_requeue=self_requeue,
            checkpoint=checkpoint,
        )
        write_json(run_dir.spec, self._spec(run, trial, experiment, found, token).to_json(), durable=False)
        run_dir.script.write_text(script)
        return JobRequest(
            run_id=run.id,
            name=name,
            script=run_dir.script,
            run_dir=run_dir.path,
            slots=run.slots,
            env=self._environment,
            nice=run.nice,
        )

    def _spec(self, run: Run, trial: Trial, experiment: Experiment, found: Shape, token: str) -> Spec:
        return Spec(
            cluster_id=self._cluster_id,
            cluster_name=self._site.cluster_name,
            master_file=str(self._home.master_file),
            run=run.id,
            experiment_id=experiment.id,
            trial_id=trial.id,
            task_id=task_id(experiment.id, trial.id),
            run_number=run.number,
            trial_seed=trial.seed,
            hparams=trial.hparams,
            config=experiment.config,
            entrypoint=experiment.config["entrypoint"],
            context=str(self._home.context(experiment.context_sha256)),
            context_sha256=experiment.context_sha256,
            token=token,
            slots=run.slots,
            num_nodes=found.nodes,
            slots_per_node=found.slots_per_node,
            slot_type=found.slot_type,
            latest_checkpoint=trial.latest_checkpoint or trial.source_checkpoint,
            steps_completed=trial.steps_completed if trial.latest_checkpoint else 0,
            restarts=trial.restarts,
            owner=experiment.owner,
            environment={
                **task_variables(experiment.config, found),
                **user_variables(experiment.config, found.slot_type),
            },
            harness=str(self._harness),
            checkpoint_storage=experiment.config["checkpoint_storage"],
            search=trial.search,
        )

    def _left_out(self, trial_id: int, config: Mapping[str, Any], found: Shape) -> list[str]:
        """Nodes that the trial's next run is not to be sent to. Whoever names nodes themselves gets what they name."""
        pool = config["resources"]["resource_pool"]
        options = [*self._site_pool(pool).sbatch_args, *((config.get("slurm") or {}).get("sbatch_args") or [])]
        if any(_NAMES_NODES.search(option) for option in options):
            return []
        off = nodes.avoided(self._ledger.state, trial_id, time.time())
        return nodes.left_out(off, self._view.pool(pool).nodes, self._asked(config, found)) if off else []

    def _script(
        self,
        run_dir: Path,
        name: str,
        config: Mapping[str, Any],
        found: Shape,
        left_out: Sequence[str] = (),
        *,
        nice: int | None = None,
        self_requeue: bool = False,
        checkpoint: float = 0.0,
    ) -> str:
        pool = self._site_pool(config["resources"]["resource_pool"])
        slurm = config.get("slurm") or {}
        slots = max(1, found.slots_per_node)
        gres = None
        if found.slot_type != "cpu" and found.slots_per_node and not pool.whole_nodes:
            gres = pool.gres_of(slots, slurm.get("gpu_type"))
        resources = Resources(
            nodes=found.nodes,
            cpus_per_task=_cores(pool, slots, slurm),
            gres=gres,
            exclusive=pool.whole_nodes,
            mem=pool.mem_per_slot and _times(pool.mem_per_slot, slots),
            partition=pool.partition,
            qos=pool.qos,
            account=pool.account,
            constraint=pool.constraint,
            reservation=pool.reservation,
            exclude=",".join(left_out) or None,
            time=pool.time_limit_seconds,
            time_min=pool.time_min_seconds,
            nice=nice,
            checkpoint=checkpoint,
        )
        return render(
            ScriptInput(
                job_name=name,
                run_dir=run_dir,
                harness=str(self._harness),
                python=pool.python,
                resources=resources,
                sbatch_args=[*pool.sbatch_args, *(slurm.get("sbatch_args") or [])],
                prologue=pool.prologue,
                use_srun=self._use_srun,
                self_requeue=self_requeue,
                follow_within=None if self_requeue else pool.min_job_seconds,
            ),
            [Path(self._site.templates)] if self._site.templates else [],
        )


def _cores(pool: PoolConfig, slots: int, slurm: Mapping[str, Any]) -> int:
    """Cores to ask of each node: those of its slots, or of the tasks of an ``srun`` in the entrypoint when they need more."""
    tasks = int(slurm.get("ntasks_per_node") or 1) * int(slurm.get("cpus_per_task") or 0)
    return max(slots * (pool.cpus_per_slot or 1), tasks)


def time_asked(options: Sequence[str]) -> float | None:
    """Seconds of the last ``--time`` or ``-t`` among sbatch's options; None: none of them, or none that can be read."""
    found = re.findall(r"(?:^|\s)(?:--time(?:=|\s+)|-t\s*)(\S+)", " ".join(options))
    try:
        return seconds(found[-1]) if found else None
    except ValueError:
        return None


def _megabytes(memory: str) -> int:
    digits = memory.rstrip("KMGTkmgt")
    return int(int(digits) * {"K": 1 / 1024, "G": 1024, "T": 1024**2}.get(memory[len(digits) :].upper(), 1))


def checkpoint_cost(taken: Sequence[float]) -> float:
    """What saving a checkpoint may take, in seconds: the 95th percentile of what it took; 0 before anything was measured."""
    ordered = sorted(taken)
    return ordered[math.ceil(0.95 * len(ordered)) - 1] if ordered else 0.0


def _times(memory: str, slots: int) -> str:
    """``memory`` such as ``16G``, for so many slots."""
    digits = memory.rstrip("KMGTkmgt")
    return f"{int(digits) * slots}{memory[len(digits) :]}"


def job_environment() -> dict[str, str]:
    """The complete environment of a submission: the master's own, without what belongs to it alone.

    The interpreter that runs the master stands first on PATH: ``python3`` in an entrypoint is the one that has the user's packages.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_FOR_JOBS)}
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return kept


def task_variables(config: Mapping[str, Any], found: Shape) -> dict[str, str]:
    """The tasks that an ``srun`` in the entrypoint starts, where the configuration gives their number or size."""
    slurm = config.get("slurm") or {}
    variables: dict[str, str] = {}
    per_node, cpus = slurm.get("ntasks_per_node"), slurm.get("cpus_per_task")
    if per_node:
        total = str(per_node * found.nodes)
        variables["SLURM_TASKS_PER_NODE"] = f"{per_node}(x{found.nodes})" if found.nodes > 1 else str(per_node)
        variables |= {"SLURM_NTASKS_PER_NODE": str(per_node), "SLURM_NTASKS": total, "SLURM_NPROCS": total}
    if cpus:
        variables |= {"SLURM_CPUS_PER_TASK": str(cpus), "SRUN_CPUS_PER_TASK": str(cpus)}
    return variables


def user_variables(config: Mapping[str, Any], slot_type: str) -> dict[str, str]:
    """``environment.environment_variables`` as names and values."""
    given = (config.get("environment") or {}).get("environment_variables") or []
    if isinstance(given, Mapping):
        given = given.get(slot_type) or given.get("cpu" if slot_type == "cpu" else "gpu") or []
    return dict(str(item).partition("=")[::2] for item in given)
