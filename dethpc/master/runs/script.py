"""The sbatch script of a run, from its configuration, its pool and its shape on the cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.site import SiteConfig
from dethpc.containers import Wrapped
from dethpc.domain import memory
from dethpc.errors import SubmitDeferred
from dethpc.master.runs.shape import Shape, cores_of_task, pool_of
from dethpc.scheduler.slurm.script import Resources, ScriptInput, render


class JobScript:
    """Knows the site. ``use_srun``: the script starts its processes through Slurm."""

    def __init__(self, site: SiteConfig, harness: Path, *, use_srun: bool) -> None:
        """Raises SubmitDeferred, as ``text``."""
        self._site, self._harness, self._use_srun = site, harness, use_srun
        self._templates()

    def text(
        self,
        run_dir: Path,
        name: str,
        config: ExperimentConfig,
        found: Shape,
        left_out: Sequence[str] = (),
        *,
        comment: str = "",
        environment: Path | None = None,
        nice: int | None = None,
        self_requeue: bool = False,
        checkpoint: float = 0.0,
        wrapped: Wrapped | None = None,
    ) -> str:
        """``wrapped``: what each task starts in a container; None: the harness on the node as it is.

        Raises SubmitDeferred where the site's templates are not there: no job is to lose unnoticed what they add."""
        pool = pool_of(self._site, config.resources.resource_pool)
        slurm = config.slurm
        slots = max(1, found.slots_per_node)
        gpus = found.slot_type != "cpu" and found.slots_per_node and not pool.whole_nodes
        resources = Resources(
            nodes=found.nodes,
            ntasks_per_node=slurm.ntasks_per_node,
            cpus_per_task=cores_of_task(pool, slots, slurm),
            gres=pool.gres_of(slots, slurm.gpu_type) if gpus else None,
            exclusive=pool.whole_nodes,
            mem=pool.mem_per_slot and memory.times(pool.mem_per_slot, slots),
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
                comment=comment,
                run_dir=run_dir,
                harness=str(self._harness),
                python=pool.python,
                resources=resources,
                sbatch_args=[*pool.sbatch_args, *(slurm.sbatch_args or [])],
                prologue=pool.prologue,
                environment=environment,
                setup=config.environment.shell_lines(),
                use_srun=self._use_srun,
                self_requeue=self_requeue,
                wrapped=wrapped,
                follow_within=None if self_requeue else pool.min_job_seconds,
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
