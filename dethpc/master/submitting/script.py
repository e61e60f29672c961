"""The sbatch script of a run, from its configuration, its pool and its shape on the cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.site import PoolConfig, SiteConfig
from dethpc.containers import Wrapped
from dethpc.domain.entrypoint import batch_script
from dethpc.domain.slurm import memory
from dethpc.errors import SubmitDeferred
from dethpc.master.submitting.trial_shape import Shape, asked_of, cores_of_task, pool_of
from dethpc.scheduler.slurm.options import CPUS, MEMORY, TASKS
from dethpc.scheduler.slurm.script import Resources, ScriptInput, built_in, check_pools, render


@dataclass(frozen=True, slots=True)
class JobDetails:
    """What the script of one job has beside what its configuration and its pool ask for."""

    left_out: Sequence[str] = ()
    """Nodes that it is not to run on."""
    comment: str = ""
    environment: Path | None = None
    """The file of the environment that it runs in; None: that of its submission."""
    nice: int | None = None
    self_requeue: bool = False
    """It queues itself again when it is stopped: no master does."""
    checkpoint: float = 0.0
    """Seconds that saving a checkpoint takes."""
    wrapped: Wrapped | None = None
    """What each task starts in a container; None: the harness on the node as it is."""


class JobScript:
    """Knows the site. ``use_srun``: the script starts its processes through Slurm."""

    def __init__(self, site: SiteConfig, harness: Path, *, use_srun: bool) -> None:
        """Raises SubmitDeferred, as ``text``."""
        self._site, self._harness, self._use_srun = site, harness, use_srun
        self._templates()
        built_in()

    def text(
        self,
        run_dir: Path,
        name: str,
        config: ExperimentConfig,
        shape: Shape,
        job: JobDetails = JobDetails(),
    ) -> str:
        """The script of a run in ``run_dir``; ``name`` is its job's.

        Raises SubmitDeferred where the site's templates are not there: no job is to lose unnoticed what they add."""
        pool = pool_of(self._site, config.resources.resource_pool)
        slurm = config.slurm
        check_pools(pool.sbatch_args, config.resources.resource_pool)
        resources = replace(
            asked_resources(pool, config, shape),
            partition=pool.partition,
            qos=pool.qos,
            account=pool.account,
            constraint=pool.constraint,
            reservation=pool.reservation,
            exclude=",".join(job.left_out) or None,
            time=pool.time_limit_seconds,
            time_min=pool.time_min_seconds,
            nice=job.nice,
            checkpoint=job.checkpoint,
        )
        return render(
            ScriptInput(
                job_name=name,
                comment=job.comment,
                run_dir=run_dir,
                harness=str(self._harness),
                python=pool.python,
                resources=resources,
                sbatch_args=[*pool.sbatch_args, *(slurm.sbatch_args or [])],
                prologue=pool.prologue,
                environment=job.environment,
                setup=config.environment.shell_lines(),
                use_srun=self._use_srun,
                self_requeue=job.self_requeue,
                wrapped=job.wrapped,
                follow_within=None if job.self_requeue else pool.min_job_seconds,
            ),
            self._templates(),
        )

    def _templates(self) -> list[Path]:
        if self._site.templates is None:
            return []
        try:
            os.scandir(self._site.templates).close()
        except OSError as error:
            raise SubmitDeferred(f"templates of the site configuration: {error.filename}: {error.strerror}") from None
        return [Path(self._site.templates)]


def asked_resources(pool: PoolConfig, config: ExperimentConfig, shape: Shape) -> Resources:
    """Nodes, tasks, cores, GPUs and memory, but for those that options of sbatch ask for: their own lines say it. An sbatch script
    gets what sbatch gives it, so of what it leaves open only the site's own defaults are asked for."""
    slurm, slots = config.slurm, max(1, shape.slots_per_node)
    request = asked_of([*pool.sbatch_args, *(slurm.sbatch_args or [])])
    script = batch_script(config.entrypoint) is not None
    cores = cores_of_task(pool, shape, slurm)
    cores_asked = bool(request.names & CPUS) or (script and not pool.cpus_per_slot and (request.sized or cores == 1))
    gpus = shape.slot_type != "cpu" and shape.slots_per_node and not pool.whole_nodes and not request.asks_gpus
    own_gpus = gpus and not (script and request.whole_nodes)
    return Resources(
        nodes=None if request.nodes is not None or shape.open else shape.nodes,
        ntasks_per_node=None if request.names & TASKS else slurm.ntasks_per_node,
        cpus_per_task=None if cores_asked else cores,
        gres=pool.gres_of(slots, slurm.gpu_type) if own_gpus else None,
        exclusive=pool.whole_nodes and not request.whole_nodes,
        mem=None if request.names & MEMORY else pool.mem_per_slot and memory.times(pool.mem_per_slot, slots),
    )
