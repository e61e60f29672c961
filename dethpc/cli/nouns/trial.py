"""``det trial``."""

from __future__ import annotations

from typing import Any, Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import (
    EXPERIMENT,
    PAGES,
    STATES_OF_TRIALS,
    TRIALS,
    apply_to_each,
    days_of_logs,
    kept_for,
    listing,
    number,
)
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup

_ID = click.argument("trial_id", metavar="ID", type=number)


@click.group(
    cls=LazyGroup,
    lazy={
        "continue": ("dethpc.cli.commands.fork:continue_trial", "Continue a trial in a new experiment."),
        "list": ("dethpc.cli.nouns.trial:list_trials", "List the trials of an experiment."),
        "logs": ("dethpc.cli.commands.logs:trial_logs", "Show the logs of trials."),
        "plot": ("dethpc.cli.commands.plot:of_trial", "Plot what trials reported."),
    },
)
def trial() -> None:
    """Inspect single trials, their metrics and logs."""


@trial.command()
@TRIALS
@click.option(
    "--metrics",
    is_flag=True,
    help="Show every report, with the metrics of each batch where reported; else the last ones.",
)
@click.option(
    "--metrics-summary", is_flag=True, help="Print only a summary of the metrics (last, min, max, mean), as JSON."
)
@click.option("--limit", type=click.IntRange(0), default=0, help="At most this many reports of each (0: all).")
@click.option("--offset", type=click.IntRange(0), default=0, help="Skip this many reports of each.")
@PAGES
@output.as_csv
@output.as_json
def describe(
    ids: list[int], metrics: bool, metrics_summary: bool, limit: int, offset: int, as_csv: bool, as_json: bool
) -> None:
    """Describe trials: their states and why, hyperparameters, and what they reported."""
    from dethpc.cli.describe import Tensorboards
    from dethpc.client.nouns import trials

    session = connect()
    if metrics_summary:
        summaries = [trials.get(session, number).get("summaryMetrics") or {} for number in ids]
        output.print_json(summaries if len(ids) > 1 else summaries[0])
        return
    few = not (metrics or limit or offset or as_json or as_csv)
    every = [_about(session, number, few=few, batch_metrics=metrics) for number in ids]
    for about in every:
        about["workloads"] = about["workloads"][offset:][: limit or None]
    if as_json:
        output.print_json(every if len(ids) > 1 else every[0])
    elif as_csv:
        _print_csv(every)
    else:
        tensorboards = Tensorboards(session)
        for n, about in enumerate(every):
            if n:
                output.echo()
            _print_trial(tensorboards, about)


_FEW = 10  # reports


def _about(session: Any, trial_id: int, *, few: bool, batch_metrics: bool) -> dict[str, Any]:
    """``few``: of what it reported, the last validations and checkpoints alone, and how many there are (``milestones``)."""
    from dethpc.client.nouns import trials

    answer = trials.with_runs(session, trial_id)
    trial = answer["trial"]
    if few:
        workloads, count = trials.last_milestones(session, trial_id, _FEW)
        shown = {"workloads": workloads, "milestones": count}
    else:
        shown = {"workloads": list(trials.workloads(session, trial_id, batch_metrics=batch_metrics))}
    return {
        "trial": trial,
        "runs": answer.get("runs") or [],
        "attempts": trials.timeline(session, trial_id)["attempts"],
        **shown,
        "waiting": None if trial.get("endTime") else trials.waiting(session, trial_id),
    }


def _print_csv(every: list[dict[str, Any]]) -> None:
    """One table; where it is of several trials, each row names its own."""
    from dethpc.cli.describe import WORKLOADS, workload_rows

    rows = [{"trial": about["trial"]["id"], **row} for about in every for row in workload_rows(about["workloads"])]
    columns = [*([tables.Column("Trial", "trial")] if len(every) > 1 else []), *WORKLOADS]
    tables.show(tables.Table(columns, rows), tables.Layout(as_csv=True))


def _print_trial(tensorboards: Any, about: dict[str, Any]) -> None:
    from dethpc.cli.describe import WORKLOADS, advice, attempt_table, job, reason, used, waiting, workload_rows
    from dethpc.cli.trial_table import best_metric, started

    t, waits, last = about["trial"], about["waiting"], about["runs"][-1] if about["runs"] else {}
    output.print_fields(
        [
            ("Trial", t["id"]),
            ("Experiment", t.get("experimentId")),
            ("State", output.standing(t)),
            ("Reason", reason(t)),
            ("Warning", t.get("warning")),
            ("Waiting", waiting(waits) if waits else ""),
            ("Job", job(last)),
            ("Run", last.get("directory")),
            ("Used", used(last)),
            *advice(last),
            ("TensorBoard", tensorboards.of_trial(t)),
            ("Restarts", t.get("restarts")),
            ("Steps", t.get("totalBatchesProcessed")),
            ("Best metric", output.digits(best_metric(t))),
            ("Hyperparameters", output.settings(t.get("hparams"))),
            ("Started", output.when(started(t))),
            ("Ended", output.when(t.get("endTime"))),
            ("Checkpoints", t.get("checkpointCount")),
            ("Resumes", _resumes(t)),
            ("Starts from", t.get("warmStartCheckpointUuid")),
        ]
    )
    attempts = attempt_table(about["attempts"])
    if attempts.rows:
        output.echo()
        tables.show(attempts)
    rows = workload_rows(about["workloads"])
    if not rows:
        return
    output.echo()
    more = int(about.get("milestones", 0)) - len(about["workloads"])
    below = [f"{more} earlier ones, and all of training: det trial describe {t['id']} --metrics"] if more > 0 else []
    tables.show(tables.Table(WORKLOADS, rows, below=below))


def _resumes(trial: dict[str, Any]) -> str:
    """Of a paused trial: where it goes on once it is activated."""
    if output.state(trial.get("state")) != "PAUSED":
        return ""
    if trial.get("checkpointCount"):
        return "from its newest checkpoint"
    if trial.get("warmStartCheckpointUuid"):
        return "from the checkpoint that it started from: it has none of its own"
    return "from the beginning: it has no checkpoint"


@trial.command()
@TRIALS
def kill(ids: list[int]) -> None:
    """End trials at once; their experiments continue."""

    def do(session: Any, trial_id: int) -> str:
        from dethpc.client.nouns import trials

        before = trials.get(session, trial_id)
        if output.state(before.get("state")) in ("COMPLETED", "CANCELED", "ERROR"):
            return f"Trial {trial_id} is {output.standing(before)}: nothing to do"
        trials.kill(session, trial_id)
        return f"Killed trial {trial_id}"

    apply_to_each(ids, do)


@trial.command("list-checkpoints")
@_ID
@listing
def list_checkpoints(trial_id: int, layout: tables.Layout) -> None:
    """List the checkpoints of a trial, the newest last."""
    from dethpc.cli.nouns.checkpoint import print_checkpoints
    from dethpc.client.nouns import trials

    print_checkpoints(trials.checkpoints(connect(), trial_id), layout)


@trial.command()
@_ID
@click.option("--best", is_flag=True, help="The checkpoint with the best searcher metric.")
@click.option("--latest", is_flag=True, help="The newest checkpoint (the default).")
@click.option("--uuid", help="This checkpoint of the trial.")
@click.option("--sort-by", metavar="METRIC", help="With --best: the best by this validation metric.")
@click.option("--smaller-is-better", type=bool, metavar="BOOL", help="With --sort-by: whether a small value is good.")
@click.option(
    "-o", "--output-dir", type=click.Path(file_okay=False), help="Directory to write to [default: checkpoints/UUID]."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the path.")
def download(
    trial_id: int,
    best: bool,
    latest: bool,
    uuid: Optional[str],
    sort_by: Optional[str],
    smaller_is_better: Optional[bool],
    **target: Any,
) -> None:
    """Download a checkpoint of a trial."""
    from dethpc import errors
    from dethpc.cli.nouns.checkpoint import download_checkpoint
    from dethpc.client.nouns import trials

    if best + latest + (uuid is not None) > 1:
        raise click.UsageError("Name one of --best, --latest and --uuid.")
    if (sort_by is None) != (smaller_is_better is None) or (sort_by and not best):
        raise click.UsageError(
            "--sort-by needs --best and --smaller-is-better true or false; --best alone goes by the searcher's metric."
        )
    session = connect()
    by_searcher = best and sort_by is None
    every = [c for c in trials.checkpoints(session, trial_id, best_first=by_searcher) if uuid in (None, c["uuid"])]
    completed = [c for c in every if output.state(c.get("state")) == "COMPLETED"]
    if not completed:
        which_one = f"checkpoint {uuid}" if uuid else "checkpoint"
        why = next((f" (one is {output.state(c.get('state'))}: {c['reason']})" for c in every if c.get("reason")), "")
        raise errors.NotFound(
            f"trial {trial_id} has no {which_one} to download{why}; see det trial list-checkpoints {trial_id}"
        )
    if sort_by is not None:
        uuid = _best_by(sort_by, completed, -1 if smaller_is_better else 1)
    elif by_searcher:
        # Not the trial's bestCheckpoint: its best validation may be of a step at which none was saved.
        metrics = ((c["uuid"], (c.get("training") or {}).get("searcherMetric")) for c in completed)
        uuid = next((name for name, metric in metrics if isinstance(metric, (int, float))), None)
        if not uuid:
            raise errors.NotFound(
                f"no checkpoint of trial {trial_id} has a validation with the searcher's metric; reported: "
                f"{_reported(completed)}. Name one with --sort-by, or use --latest"
            )
    download_checkpoint(session, uuid or completed[-1]["uuid"], target["output_dir"], target["quiet"])


def _best_by(metric: str, checkpoints: list[dict[str, Any]], sign: int) -> str:
    """The one whose validation has the greatest ``sign`` * ``metric``. Raises NotFound."""
    from dethpc import errors

    values = [
        (sign * metrics[metric], c["uuid"])
        for c in checkpoints
        if isinstance((metrics := _validation(c)).get(metric), (int, float))
    ]
    if not values:
        raise errors.NotFound(
            f"no checkpoint has a validation with a number {metric!r}; reported: {_reported(checkpoints)}"
        )
    return str(max(values)[1])


def _reported(checkpoints: list[dict[str, Any]]) -> str:
    """The metrics of their validations."""
    return ", ".join(sorted({name for c in checkpoints for name in _validation(c)})) or "none"


def _validation(checkpoint: dict[str, Any]) -> dict[str, Any]:
    training = checkpoint.get("training") or {}
    return (training.get("validationMetrics") or {}).get("avgMetrics") or {}


@trial.group("set", cls=LazyGroup)
def set_attribute() -> None:
    """Change an attribute of a trial."""


@set_attribute.command("log-retention")
@_ID
@days_of_logs
def set_log_retention(trial_id: int, days: int, forever: bool) -> None:
    """Set for how long its logs are kept, whatever its experiment says."""
    from dethpc.client.nouns import experiments

    experiments.retain_logs(connect(), "trials", trial_id, days)
    output.echo(f"Keeping the logs of trial {trial_id} {kept_for(days)}")


@click.command("list-trials")
@click.argument("experiment_id", metavar="EXPERIMENT", type=EXPERIMENT)
@click.option("--best", type=click.IntRange(1), metavar="N", help="The N best by the searcher's metric, best first.")
@STATES_OF_TRIALS
@click.option("--limit", type=click.IntRange(0), default=0, help="At most this many (0: no limit).")
@click.option("--offset", type=click.IntRange(0), default=0, help="Skip this many.")
@PAGES
@listing
def list_trials(
    experiment_id: int, best: Optional[int], states: list[str], limit: int, offset: int, layout: tables.Layout
) -> None:
    """List the trials of an experiment, and the values of each hyperparameter that is searched."""
    from dethpc.cli.trial_table import found_trials, trial_table, with_curves
    from dethpc.client.nouns import experiments

    session = connect()
    about = experiments.get(session, experiment_id)
    if best is not None:
        layout, limit = layout._replace(sort="-metric" if layout.sort.startswith("-") else "metric"), best
    rows, layout = found_trials(session, about, limit=limit, offset=offset, layout=layout, states=states)
    if not (layout.as_json or layout.as_csv):
        with_curves(session, about, rows)
    tables.show(trial_table(about, rows), layout, rows)
