"""``det slurm``: the trial that a Slurm job runs."""

from __future__ import annotations

import re

import click

from dethpc.cli import output
from dethpc.cli.connect import connect
from dethpc.cli.output import Json


def _job(context: click.Context, parameter: click.Parameter, text: str) -> str:
    """``28``, or ``28_3`` of a job array; ``28.batch`` and ``28.0``, as sacct lists the steps of a job, mean their job."""
    match = re.fullmatch(r"(\d+(?:_\d+)?)(\.\w+)?", text, re.ASCII)
    if re.match(r"\d+_\[", text):
        raise click.BadParameter(f"{text} is a job array; name one of its jobs, such as {text.partition('[')[0]}3")
    if match is None:
        raise click.BadParameter(f"must be a job id of Slurm as squeue shows it, such as 28 or 28_3, not {text!r}")
    return match[1]


@click.command()
@click.argument("job_id", metavar="JOBID", callback=_job)
@output.as_json
def slurm(job_id: str, as_json: bool) -> None:
    """Find the trial of a Slurm job, live or ended: its experiment, state, nodes and run folder."""
    from dethpc.cli.describe import advice, job, used
    from dethpc.client.nouns import trials

    runs = trials.of_job(connect(), job_id)
    if as_json:
        output.print_json({"jobId": job_id, "runs": runs})
        return
    for n, one in enumerate(runs):
        if n:
            output.echo()
        output.print_fields(
            [
                ("Task", _task(one)),
                ("Trial", one["trialId"]),
                ("Experiment", _named(one)),
                ("State", output.standing({"state": one["trialState"], "reason": one.get("trialReason")})),
                ("Job", job(one["run"])),
                ("Run", one["run"]["directory"]),
                ("Used", used(one["run"])),
                *advice(one["run"]),
                ("Reason", one["run"]["reason"]),
                ("Started", output.when(one["run"]["startTime"])),
                ("Ended", output.when(one["run"]["endTime"])),
            ]
        )


def _task(one: Json) -> str:
    """What a job does that trains no trial."""
    if one["trialId"] is not None:
        return ""
    if one["taskKind"] != "CHECKPOINT_GC":
        return str(one["taskName"])
    whose = one["experimentId"]
    return "removes the files of deleted checkpoints" if whose is None else f"removes the files of experiment {whose}"


def _named(one: Json) -> str:
    return f"{one['experimentId']} ({one['experimentName']})" if one["trialId"] is not None else ""
