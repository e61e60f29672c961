"""``det trial``."""

from __future__ import annotations

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import listing
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup

_ID = click.argument("trial_id", metavar="ID", type=int)


@click.group(
    cls=LazyGroup,
    lazy={
        "list": ("dethpc.cli.trial_list:list_trials", "List the trials of an experiment."),
        "logs": ("dethpc.cli.logs:trial_logs", "Show the log of a trial."),
        "plot": ("dethpc.cli.plot:of_trial", "Plot what trials reported."),
    },
)
def trial() -> None:
    """Inspect single trials, their metrics and logs."""


@trial.command()
@_ID
@click.option("--metrics", is_flag=True, help="Include the metrics of each batch, where reported.")
@click.option(
    "--metrics-summary", is_flag=True, help="Print only a summary of the metrics (last, min, max, mean), as JSON."
)
@output.as_csv
@output.as_json
def describe(trial_id: int, metrics: bool, metrics_summary: bool, as_csv: bool, as_json: bool) -> None:
    """Describe a trial: its state and why, hyperparameters, and what it reported."""
    from dethpc.cli.describe import WORKLOADS, job, reason, waiting, workload_rows
    from dethpc.cli.trial_table import best_metric
    from dethpc.client import trials

    session = connect()
    t = trials.get(session, trial_id)
    if metrics_summary:
        output.print_json(t.get("summaryMetrics") or {})
        return
    reports = list(trials.workloads(session, trial_id, batch_metrics=metrics))
    waits = None if t.get("endTime") else trials.waiting(session, trial_id)
    if as_json:
        runs = trials.runs(session, trial_id)
        output.print_json({"trial": t, "runs": runs, "workloads": reports, "waiting": waits})
        return
    if not as_csv:
        runs = trials.runs(session, trial_id)
        last = runs[-1] if runs else {}
        output.print_fields(
            [
                ("Trial", t["id"]),
                ("Experiment", t.get("experimentId")),
                ("State", output.state(t.get("state"))),
                ("Reason", reason(t)),
                ("Warning", t.get("warning")),
                ("Waiting", waiting(waits) if waits else ""),
                ("Job", job(last)),
                ("Run", last.get("directory")),
                ("Restarts", t.get("restarts")),
                ("Steps", t.get("totalBatchesProcessed")),
                ("Best metric", output.number(best_metric(t))),
                ("Hyperparameters", output.settings(t.get("hparams"))),
                ("Started", output.when(t.get("startTime"))),
                ("Ended", output.when(t.get("endTime"))),
                ("Checkpoints", t.get("checkpointCount")),
                ("Starts from", t.get("warmStartCheckpointUuid")),
            ]
        )
        output.echo()
    tables.show(tables.Table(WORKLOADS, workload_rows(reports)), tables.Wanted(as_csv=as_csv))


@trial.command()
@_ID
def kill(trial_id: int) -> None:
    """End a trial at once; its experiment goes on."""
    from dethpc import errors
    from dethpc.client import trials

    session = connect()
    before = output.state(trials.get(session, trial_id).get("state"))
    if before in ("COMPLETED", "CANCELED"):
        output.echo(f"Trial {trial_id} is {before}: nothing to do")
        return
    if before == "ERROR":
        raise errors.Refused(f"trial {trial_id} is ERROR: it has already ended")
    trials.kill(session, trial_id)
    output.echo(f"Killed trial {trial_id}")


@trial.command("list-checkpoints")
@_ID
@listing
def list_checkpoints(trial_id: int, wanted: tables.Wanted) -> None:
    """List the checkpoints of a trial, the newest last."""
    from dethpc.cli.checkpoint import print_checkpoints
    from dethpc.client import trials

    print_checkpoints(trials.checkpoints(connect(), trial_id), wanted)


@trial.command()
@_ID
@click.option("--best", "which", flag_value="best", help="The checkpoint with the best searcher metric.")
@click.option("--latest", "which", flag_value="latest", default="latest", help="The newest checkpoint (the default).")
@click.option(
    "-o", "--output-dir", type=click.Path(file_okay=False), help="Directory to write to [default: checkpoints/UUID]."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the path.")
def download(trial_id: int, which: str, output_dir: str, quiet: bool) -> None:
    """Download a checkpoint of a trial."""
    from dethpc import errors
    from dethpc.cli.checkpoint import download_checkpoint
    from dethpc.client import trials

    session = connect()
    found = [c for c in trials.checkpoints(session, trial_id) if output.state(c.get("state")) == "COMPLETED"]
    if not found:
        raise errors.NotFound(
            f"trial {trial_id} has no checkpoint to download; see det trial list-checkpoints {trial_id}"
        )
    uuid = found[-1]["uuid"]
    if which == "best":
        best = trials.get(session, trial_id).get("bestCheckpoint") or {}
        if not best.get("uuid"):
            raise errors.NotFound(f"trial {trial_id} has no checkpoint with a validation; use --latest")
        uuid = best["uuid"]
    download_checkpoint(session, uuid, output_dir, quiet)
