"""What a trial asks of its pool, and whether it can ever start there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.site import SiteConfig
from dethpc.config.wording import show
from dethpc.domain.entrypoint import batch_script
from dethpc.domain.ports import PoolInfo
from dethpc.domain.resource_request import ResourceRequest
from dethpc.domain.slurm import memory
from dethpc.errors import ConfigError, Problem, Refused, SchedulerUnavailable
from dethpc.insight.waiting import infeasible
from dethpc.master.submitting import run_container
from dethpc.master.submitting.script import JobScript
from dethpc.master.submitting.trial_shape import (
    Shape,
    asked_of,
    cores_per_node,
    is_of_options,
    pool_of,
    spread,
    spread_as_asked,
    time_asked,
)
from dethpc.master.watching.cluster_view import PLAN, ClusterView
from dethpc.searcher.methods import build as build_searcher


class Admission:
    """Every method may be called from any thread, and raises SchedulerUnavailable while nothing is known of the cluster."""

    def __init__(self, site: SiteConfig, view: ClusterView, script: JobScript, home: Path) -> None:
        self._site, self._view, self._script, self._home = site, view, script, home

    def pools(self) -> list[PoolInfo]:
        """As they were in the last minutes. Raises SchedulerUnavailable."""
        return self._view.pools(PLAN)

    def default_pool(self) -> str:
        pools = self._view.pools(PLAN)
        return next((pool.name for pool in pools if pool.default), pools[0].name if pools else "default")

    def pool_for_files(self, of: str) -> str:
        """Where a job runs that does something to files of this pool's experiments: there, or in the default pool if the cluster
        has that pool no longer. Never raises."""
        try:
            exists = any(pool.name == of for pool in self._view.pools(PLAN))
            return of if exists else self.default_pool()
        except SchedulerUnavailable:
            return of

    def check(self, config: ExperimentConfig) -> str:
        """Refuse at once what could never start. Returns the script that a job of a trial would have. Raises ConfigError."""
        name = config.resources.resource_pool
        self.pool(name)
        self._within_limits(config)
        try:
            shape = self.shape(config)
        except ValueError as error:
            raise ConfigError([Problem("resources.slots_per_trial", f"asks for {error}")]) from None
        impossible = infeasible(self._request(config, shape), self._view.pool(name))
        if impossible is not None:
            raise ConfigError([Problem(impossible.field, f"asks for {impossible.why}; {impossible.remedy}")])
        self.container(config, shape.slot_type)
        return self._script.text(Path("/run"), "check", config, shape)

    def _within_limits(self, config: ExperimentConfig) -> None:
        """Refuse what the site forbids. Raises ConfigError with all of it."""
        limits, resources = self._site.limits, config.resources
        most_trials, most_slots = limits.trials_per_experiment, limits.slots_per_experiment
        problems = []
        if most_trials is not None and (trials := _trials(config)) > most_trials:
            message = f"the search has {trials:,} trials; the site allows {most_trials:,} for one experiment"
            problems.append(Problem("searcher", message))
        if most_slots is not None:
            allowed = f"the site allows one experiment {most_slots:,} slots at once"
            sizes = {"slots_per_trial": resources.slots_per_trial, "max_slots": resources.max_slots or 0}
            problems += [
                Problem(f"resources.{name}", f"{value:,} is too much; {allowed}")
                for name, value in sizes.items()
                if value > most_slots
            ]
        if problems:
            raise ConfigError(problems)

    def limited(self, config: ExperimentConfig, bound: int | None = None) -> tuple[ExperimentConfig, list[str]]:
        """The configuration with the site's limit on slots where it names none, and a note of that. ``bound``: of config policies,
        which count where they allow less."""
        most = self._site.limits.slots_per_experiment
        if most is None or config.resources.max_slots is not None or (bound is not None and bound <= most):
            return config, []
        note = f"resources.max_slots is {most}: the site allows one experiment no more slots at once"
        narrower = max(1, _trials(config)) * config.resources.slots_per_trial > most
        return config.with_changes({"max_slots": most}), [note] if narrower else []

    def allow_slots(self, most: int | None) -> None:
        """Raises Refused for a ``max_slots`` beyond what the site allows; None: without a limit."""
        limit = self._site.limits.slots_per_experiment
        if limit is not None and (most is None or most > limit):
            raise Refused(f"max_slots can be {limit} at most: the site allows one experiment no more slots at once")

    def container(self, config: ExperimentConfig, slot_type: str | None = None) -> run_container.Inside | None:
        """The container that its trials start in; None: they start without one. Raises ConfigError where that cannot be,
        ValueError where the trial fits no node."""
        site_pool = pool_of(self._site, config.resources.resource_pool)
        inside = run_container.of(site_pool, config, slot_type or self.shape(config).slot_type)
        if inside is not None:
            inside.check(config, self._home)
        return inside

    def image(self, pool: str, config: dict[str, Any]) -> str:
        """What trials of this configuration start from, "" where they start without a container or nobody can say."""
        site_pool = pool_of(self._site, pool)
        if not site_pool.container:
            return ""
        try:
            typed = ExperimentConfig.from_json(config)
            inside = run_container.of(site_pool, typed, self.shape(typed).slot_type)
        except (ConfigError, ValueError, SchedulerUnavailable):
            return ""
        return "" if inside is None else inside.remote.name if inside.remote else inside.path

    def pool(self, name: str) -> None:
        """Refuse a pool that is not there, or has no nodes. Raises ConfigError."""
        pools = self._view.pools(PLAN)
        usable = ", ".join(pool.name for pool in pools if pool.nodes)
        pool = next((pool for pool in pools if pool.name == name), None)
        if pool is None:
            raise ConfigError([Problem.of_value("resources.resource_pool", show(name), f"one of {usable}")])
        if not pool.nodes:
            message = f"the partition {pool.partition!r} of pool {name!r} has no nodes; those of {usable} have"
            raise ConfigError([Problem("resources.resource_pool", message)])

    def time_limit(self, config: ExperimentConfig) -> float | None:
        """Seconds that Slurm lets a job run; None: unknown, or without a limit."""
        pool = pool_of(self._site, config.resources.resource_pool)
        options = [*pool.sbatch_args, *(config.slurm.sbatch_args or [])]
        return time_asked(options) or (None if pool.time_min_seconds else pool.time_limit_seconds)

    def request(self, config: ExperimentConfig) -> ResourceRequest:
        """What a trial of the experiment asks of its pool. Raises SchedulerUnavailable, and ValueError where it fits no node."""
        return self._request(config, self.shape(config))

    def _request(self, config: ExperimentConfig, shape: Shape) -> ResourceRequest:
        name = config.resources.resource_pool
        pool, slots = pool_of(self._site, name), max(1, shape.slots_per_node)
        options = [*pool.sbatch_args, *(config.slurm.sbatch_args or [])]
        return ResourceRequest(
            pool=name,
            nodes=shape.nodes,
            slots_per_node=shape.slots_per_node,
            slot_type=shape.slot_type,
            time_limit=time_asked(options) or pool.time_min_seconds or pool.time_limit_seconds,
            cpus_per_node=cores_per_node(pool, config, shape),
            memory_per_node_mb=slots * memory.megabytes(pool.mem_per_slot or "0M"),
        )

    def shape(self, config: ExperimentConfig) -> Shape:
        """Raises SchedulerUnavailable, and ValueError where the trial fits no node."""
        resources, name = config.resources, config.resources.resource_pool
        pools, nodes = self._view.pools(PLAN), self._view.nodes(PLAN)
        site_pool = pool_of(self._site, name)
        slot_type = next((pool.slot_type for pool in pools if pool.name == name), "cpu")
        sizes = [node.slots for node in nodes if name in node.pools]
        largest = max(sizes, default=0)
        per_node = config.slurm.slots_per_node or site_pool.slots_per_node or largest
        single, slots = resources.is_single_node or False, resources.slots_per_trial
        request = asked_of(config.slurm.sbatch_args or [])
        script = batch_script(config.entrypoint) is not None
        if request.nodes is None and not (script and is_of_options(request, slots, slot_type)):
            return spread(slots, per_node, slot_type, single_node=single, most=sum(sizes))
        shape = spread_as_asked(slots, per_node, slot_type, request, even=not script)
        if single and shape.nodes > 1:
            raise ValueError(f"{shape.nodes} nodes, beside is_single_node")
        return shape


def _trials(config: ExperimentConfig) -> int:
    """How many trials its search will have; 0 of one that the user's own code decides."""
    return build_searcher(config.searcher, config.space, 0).total
