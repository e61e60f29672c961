"""``det simulate``: the duration and cost of a search, simulated without a master, a cluster or training."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

import click

from dethpc.cli import output
from dethpc.cli.arguments import Number
from dethpc.cli.output import Json

if TYPE_CHECKING:
    from dethpc.simulator import Faults, Pace, Result, Site, Workload

_HOUR = 3600.0
_WIDTH, _HEIGHT = 60, 8  # of the chart, in characters

AtLeastOne = click.IntRange(min=1)
Positive = Number(min=0)


@click.command()
@click.argument("config", metavar="CONFIG", type=click.File(encoding="utf-8"))
@click.option("--config", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a field (repeatable).")
@click.option("--slots", type=AtLeastOne, metavar="N", help="Slots in total, on as few nodes as possible.")
@click.option("--nodes", type=AtLeastOne, metavar="N", help="Nodes [4].")
@click.option("--slots-per-node", type=AtLeastOne, metavar="N", help="Slots per node [8].")
@click.option(
    "--load",
    type=Number(0, 0.95),
    default=0.0,
    metavar="SHARE",
    help="Share of the slots that others hold [0].",
)
@click.option(
    "--startup", type=Positive, default=30.0, metavar="S", help="Seconds from getting slots to the first step [30]."
)
@click.option("--step-time", type=Positive, default=1.0, metavar="S", help="Seconds per step [1].")
@click.option("--length", type=AtLeastOne, metavar="STEPS", help="Steps of a full trial [max_time, or else 100].")
@click.option("--validate-every", type=AtLeastOne, metavar="STEPS", help="Steps between two validations.")
@click.option(
    "--spread", type=Positive, default=0.0, metavar="X", help="How much the trials' speeds differ; 0.3 is a lot [0]."
)
@click.option(
    "--curves", type=click.File(), metavar="FILE", help="CSV from an earlier experiment: trial, step, METRIC."
)
@click.option("--node-failure", type=Positive, metavar="HOURS", help="Mean time until a node fails [never].")
@click.option("--preemption", type=Positive, metavar="HOURS", help="Mean time until a job is preempted [never].")
@click.option("--seed", type=int, metavar="N", help="Seed for everything random [experiment_seed, or else 0].")
@output.as_json
def simulate(
    config: Any,
    overrides: Sequence[str],
    slots: Optional[int],
    nodes: Optional[int],
    slots_per_node: Optional[int],
    load: float,
    startup: float,
    step_time: float,
    length: Optional[int],
    validate_every: Optional[int],
    spread: float,
    curves: Any,
    node_failure: Optional[float],
    preemption: Optional[float],
    seed: Optional[int],
    as_json: bool,
) -> None:
    """Simulate the search in CONFIG and show what it would cost.

    The engine that runs real experiments runs it here against a simulated cluster and clock. A step is one unit of the
    searcher's length (max_time): a batch or an epoch. Trials learn according to a seeded model, or like those in --curves.

    \b
    Which is cheaper:
      det simulate config.yaml --slots 16 --step-time 40
      det simulate config.yaml --slots 16 --step-time 40 --config searcher.mode=aggressive
    """
    from dethpc import config as configs
    from dethpc.cli.commands.create import read_config
    from dethpc.simulator import Pace
    from dethpc.simulator import simulate as run

    loaded = configs.load(read_config(config), file=config.name, overrides=list(overrides))
    for warning in loaded.warnings:
        output.say(f"det: warning: {warning}")
    configured = loaded.config
    if seed is None:
        seed = configured.reproducibility.experiment_seed or 0
    site = _site(slots, nodes, slots_per_node, load)
    pace = Pace(
        startup=startup,
        step=step_time,
        spread=spread,
        length=length,
        validation_period=validate_every,
        checkpoint_each=1 if node_failure or preemption else 0,
    )
    workload, faults = _workload(curves, configured.searcher.metric), _faults(node_failure, preemption)
    began = time.perf_counter()
    result = run(configured, site, pace, workload=workload, seed=seed, faults=faults)
    took = time.perf_counter() - began
    if as_json:
        output.print_json({**result.to_json(), "simulatedIn": took, "assumed": _assumed(site, pace, result, seed)})
    else:
        _show(result, site, pace, seed, took, curves)


def _workload(curves: Any, metric: str) -> Optional[Workload]:
    """None: trials learn as a model says."""
    from dethpc.simulator import Replay

    return None if curves is None else Replay.read(curves, metric, curves.name)


def _faults(node_failure: Optional[float], preemption: Optional[float]) -> Faults:
    """From hours."""
    from dethpc.simulator import Faults

    return Faults(
        node_failure=node_failure * _HOUR if node_failure else None,
        preemption=preemption * _HOUR if preemption else None,
    )


def _site(slots: Optional[int], nodes: Optional[int], slots_per_node: Optional[int], load: float) -> Site:
    from dethpc.simulator import Site

    if slots is None:
        return Site(nodes or 4, slots_per_node or 8, load=load)
    if nodes is not None:
        raise click.UsageError("--slots and --nodes are mutually exclusive; use --nodes with --slots-per-node.")
    per_node = slots_per_node or min(slots, 8)
    if slots % per_node:
        raise click.UsageError(f"--slots {slots} is not a multiple of {per_node} slots per node; set --slots-per-node.")
    return Site(slots // per_node, per_node, load=load)


def _assumed(site: Site, pace: Pace, result: Result, seed: int) -> Json:
    return {
        "nodes": site.nodes,
        "slotsPerNode": site.slots_per_node,
        "load": site.load,
        "startupSeconds": pace.startup,
        "stepSeconds": pace.step,
        "length": result.length,
        "validationPeriod": result.validation_period,
        "seed": seed,
    }


def _show(result: Result, site: Site, pace: Pace, seed: int, took: float, curves: Any) -> None:
    from dethpc.domain.states import State

    metric = result.config.searcher.metric
    best = result.best[-1] if result.best else None
    crowd = f", {site.load:.0%} held by others" if site.load else ""
    errored, requeued = result.count(State.ERROR), result.attempts - result.jobs
    parts = [f"{result.stopped_early} stopped early", f"{errored} failed" if errored else ""]
    output.print_fields(
        [
            ("cluster", f"{output.plural(site.nodes, 'node')} of {output.plural(site.slots_per_node, 'slot')}{crowd}"),
            (
                "training",
                f"{pace.startup:g} s to start, {pace.step:g} s a step, {result.length} steps a trial, "
                f"validated every {result.validation_period}",
            ),
            ("curves", f"those of {curves.name}" if curves is not None else f"a model, seed {seed}: no real figures"),
            ("ended", result.experiment.reason if result.experiment.state is State.ERROR else ""),
            ("trials", f"{len(result.trials)} ({', '.join(part for part in parts if part)})"),
            ("jobs", f"{result.jobs}" + (f", requeued {requeued} times" if requeued else "")),
            ("GPU-hours", f"{result.slot_hours:.1f}"),
            ("makespan", duration(result.makespan)),
            ("waiting", f"{duration(result.waited / result.attempts)} a job for its slots" if result.waited else ""),
            (
                f"best {metric}",
                f"{output.digits(best.value)} after {duration(best.at)} (trial {best.trial_index + 1}, {best.steps} steps)"
                if best
                else "never reported as a number",
            ),
            ("simulated in", f"{took:.1f} s"),
        ]
    )
    output.echo()
    for line in chart(result, "█" if sys.stdout.isatty() else "#"):
        output.echo(line)


def chart(result: Result, block: str, width: int = _WIDTH, height: int = _HEIGHT) -> list[str]:
    """Slots over time as lines of text: time to the right, the mean number of slots held upwards."""
    values = result.slots_in(width)
    top = max(1, result.peak_slots)
    margin = len(str(top))
    lines = ["slots held"]
    for row in range(height, 0, -1):
        label = str(round(top * row / height)) if row in (height, height // 2) else ""
        bars = "".join(block if value / top > (row - 0.5) / height else " " for value in values)
        lines.append(f"{label:>{margin}} |{bars}".rstrip())
    end = duration(result.makespan)
    lines += [f"{0:>{margin}} +{'-' * width}", f"{'':>{margin}}  0{end:>{width - 1}}"]
    return lines


def duration(seconds: float) -> str:
    """Two units at most: ``3 h 20 min``."""
    for name, size, below, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            whole = int(seconds // size)
            return f"{whole} {name} {int((seconds - whole * size) // part)} {below}"
    return f"{seconds:.0f} s"
