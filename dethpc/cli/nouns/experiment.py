"""``det experiment``: list, show and control experiments. ``create``, ``logs`` and ``wait`` have modules of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import click

from dethpc import errors
from dethpc.cli import output, tables
from dethpc.cli.arguments import ID, IDS, PROJECT, STATES, YES, apply_to_each, confirm, listing
from dethpc.cli.commands.attributes import label, set_attribute
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup
from dethpc.cli.output import Json
from dethpc.domain.progress import progress


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    aliases={"lt": "list-trials", "lc": "list-checkpoints", "unpause": "activate"},
    lazy={
        "create": ("dethpc.cli.commands.create:create", "Submit CONFIG with the files in CONTEXT_DIR."),
        "continue": ("dethpc.cli.commands.fork:go_on", "Continue an ended experiment."),
        "fork": ("dethpc.cli.commands.fork:fork", "Create an experiment like another one."),
        "render": ("dethpc.cli.commands.render:render", "Print the batch script of a trial of CONFIG."),
        "export": ("dethpc.cli.commands.copies:export", "Write an experiment into one archive."),
        "import": ("dethpc.cli.commands.copies:take_in", "Import an archive, or a run that was submitted by hand."),
        "diff": ("dethpc.cli.commands.diff:diff", "Show how two differ in configuration and code."),
        "plot": ("dethpc.cli.commands.plot:of_experiment", "Plot what its best trials reported."),
        "goodput": ("dethpc.cli.commands.goodput:of_experiment", "Show where its slot-hours went."),
        "logs": ("dethpc.cli.commands.logs:experiment_logs", "Show the log of the first trial, or of all."),
        "list-trials": ("dethpc.cli.nouns.trial:list_trials", "List the trials of an experiment."),
        "wait": ("dethpc.cli.commands.wait:wait", "Wait until it ends; the exit code says how."),
    },
)
@click.pass_context
def experiment(ctx: click.Context) -> None:
    """Create, watch and control experiments. Without a command: list them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_experiments)


# --- looking ---------------------------------------------------------------------------------------------------------


@experiment.command("list")
@click.option("-a", "--all", "everybody", is_flag=True, help="Include everybody's and archived ones.")
@click.option("--show-archived", is_flag=True, help="Include archived ones.")
@STATES
@click.option("--name", metavar="TEXT", help="Only those with this text in their name.")
@click.option(
    "--project", "--project_id", "project_id", type=PROJECT, metavar="ID", help="Only this project's (id or name)."
)
@click.option("--label", "labels", multiple=True, help="Only those with this label (repeatable: with all of them).")
@click.option(
    "--limit", type=click.IntRange(1), default=200, show_default=True, help="At most this many of the newest."
)
@click.option("--offset", type=click.IntRange(0), default=0, help="Skip this many of the newest.")
@click.option("--pages", type=click.Choice(["1", "all"]), default="1", help="all: ignore --limit.")
@click.option("--show_project", is_flag=True, help="Include the workspace and the project.")
@listing
def list_experiments(
    everybody: bool,
    show_archived: bool,
    states: list[str],
    name: Optional[str],
    project_id: Optional[int],
    labels: tuple[str, ...],
    limit: int,
    offset: int,
    pages: str,
    show_project: bool,
    layout: tables.Layout,
) -> None:
    """List your experiments, the newest last."""
    from dethpc.client.nouns import experiments

    archived = None if everybody or show_archived else False
    page = experiments.listing(
        connect(),
        experiments.Filter(archived, not everybody, states, name, labels, project=project_id or 0),
        newest_first=True,
        limit=0 if pages == "all" else limit,
        offset=offset,
    )
    rows = sorted(page.get("experiments") or [], key=lambda e: int(e["id"]))
    show_experiments(rows, layout, everybody=everybody, archived=show_archived, project=show_project)
    if layout.as_json:
        return
    total = (page.get("pagination") or {}).get("total") or len(rows)
    if len(rows) + offset < total and not layout.as_csv:
        output.say(f"{len(rows)} of {total}; to see older ones: --offset {offset + len(rows)}")


def show_experiments(
    rows: list[Json], layout: tables.Layout, *, everybody: bool, archived: bool = False, project: bool = False
) -> None:
    """A table of experiments, and warnings of those that have not ended."""
    tables.show(tables.Table(_columns(everybody, archived, project), rows), layout)
    if layout.as_json:
        return
    for e in rows:
        if e.get("warning") and not e.get("endTime"):  # of those that have ended, describe tells it
            output.say(f"det: warning: experiment {e['id']}: {e['warning']}")


def _columns(everybody: bool, archived: bool, project: bool) -> list[tables.Column]:
    """Whose they are, and whether they are archived, is told where it can differ."""
    return [
        tables.Column("ID", "id", tables.COUNT),
        tables.Column("Owner", "username", rank=1, least=8, terminal=everybody),
        tables.Column("Name", "name", least=16),
        tables.Column("State", output.standing, tables.STANDING),
        tables.Column("Progress", progress, tables.PERCENT, rank=2),
        tables.Column("Trials", "numTrials", tables.COUNT, rank=3),
        tables.Column("Best", "bestTrialSearcherMetric", tables.METRIC, rank=1, pipe=False),
        tables.Column("Metric", "searcherMetric", rank=5, least=10, pipe=False),
        tables.Column("Started", "startTime", tables.AGE),
        tables.Column("Took", "duration", tables.DURATION, rank=4, pipe=False),
        tables.Column("Ended", "endTime", tables.AGE, terminal=False),
        tables.Column("Resource pool", "resourcePool", rank=6, least=12),
        tables.Column("Workspace", "workspaceName", rank=1, least=8, terminal=project, pipe=project),
        tables.Column("Project", "projectName", rank=1, least=8, terminal=project, pipe=project),
        tables.Column("Held slots", "heldSlots", tables.COUNT, terminal=False, pipe=False),
        tables.Column("Labels", lambda e: ", ".join(e.get("labels") or []), terminal=False, pipe=False),
        tables.Column("Archived", lambda e: e.get("archived", False), terminal=False, pipe=everybody or archived),
    ]


@experiment.command()
@IDS
@click.option("--metrics", is_flag=True, help="Include everything the trials reported.")
@click.option("--search", is_flag=True, help="Include each trial's position in the search.")
@click.option("--outdir", type=click.Path(path_type=Path, file_okay=False), help="Write CSV files to this directory.")
@output.as_csv
@output.as_json
def describe(ids: list[int], metrics: bool, search: bool, outdir: Optional[Path], as_csv: bool, as_json: bool) -> None:
    """Describe experiments, their searches and their trials, including what failed or was stopped, and why."""
    from dethpc.cli.describe import describe_experiments

    layout = tables.Layout(as_csv=as_csv or outdir is not None, as_json=as_json)
    describe_experiments(connect(), ids, metrics=metrics, search=search, outdir=outdir, layout=layout)


@experiment.command("list-checkpoints")
@ID
@click.option("--best", type=click.IntRange(1), metavar="N", help="The N best by the searcher's metric, best first.")
@listing
def list_checkpoints(experiment_id: int, best: Optional[int], layout: tables.Layout) -> None:
    """List the checkpoints of an experiment, by trial and by steps; those that are deleted come last."""
    from dethpc.cli.nouns.checkpoint import print_of_experiment

    print_of_experiment(experiment_id, best, layout)


@experiment.command()
@ID
@output.as_json
def config(experiment_id: int, as_json: bool) -> None:
    """Print the experiment's complete configuration as YAML."""
    from dethpc.client.nouns import experiments

    answer = experiments.get(connect(), experiment_id).get("config") or {}
    output.print_config(answer, as_json)


@experiment.command("download-model-def")
@ID
@click.option("-o", "--output-dir", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="Where to.")
def download_model_def(experiment_id: int, output_dir: Path) -> None:
    """Download the context directory as it was submitted, as a .tgz file."""
    from dethpc.client.nouns import experiments

    content = experiments.model_definition(connect(), experiment_id)
    output_dir.mkdir(parents=True, exist_ok=True)
    target = output_dir / f"experiment_{experiment_id}_model_def.tgz"
    target.write_bytes(content)
    output.echo(target)


# --- steering --------------------------------------------------------------------------------------------------------

_LIVE = {"ACTIVE", "PAUSED", "QUEUED", "PULLING", "STARTING", "RUNNING"}
_ENDED = {"COMPLETED", "CANCELED", "ERROR"}


def _state(session: Any, experiment_id: int) -> str:
    from dethpc.client.nouns import experiments

    return output.state(experiments.get(session, experiment_id)["experiment"]["state"])


def _act(action: str, *, allowed: set[str], done: str, already: set[str]) -> Callable[[Any, int], str]:
    """``allowed``: the states from which it is possible; ``already``: those in which there is nothing to do."""

    def do(session: Any, experiment_id: int) -> str:
        from dethpc.client.nouns import experiments

        before = _state(session, experiment_id)
        if before in already:
            return f"Experiment {experiment_id} is {before}: nothing to do"
        if before not in allowed:
            raise errors.Refused(f"experiment {experiment_id} {_why_not(experiment_id, before, action)}")
        experiments.act(session, experiment_id, action)
        return f"{done} experiment {experiment_id}"

    return do


def _why_not(experiment_id: int, state: str, action: str) -> str:
    """Why an experiment in that state cannot be paused, activated or archived, and what to type where something helps."""
    done = {"pause": "paused", "activate": "activated", "archive": "archived", "unarchive": "unarchived"}.get(
        action, action
    )
    if state not in _ENDED:
        first = f" before it has ended; to end it: det experiment cancel {experiment_id}" if state in _LIVE else ""
        return f"is {state}, so it cannot be {done}{first}"
    more = f"; to train further: det experiment continue {experiment_id}" if action == "activate" else ""
    return f"has ended ({state}), so it cannot be {done}{more}"


@experiment.command()
@IDS
def pause(ids: list[int]) -> None:
    """Let the trials save a checkpoint, then free their slots."""
    apply_to_each(ids, _act("pause", allowed=_LIVE, done="Paused", already={"PAUSED"}))


@experiment.command()
@IDS
def activate(ids: list[int]) -> None:
    """Resume paused experiments, or paused trials of running ones, each from its checkpoint."""
    apply_to_each(ids, _act("activate", allowed=_LIVE, done="Activated", already=set()))


@experiment.command()
@IDS
def cancel(ids: list[int]) -> None:
    """Let the trials save a checkpoint, then end the experiments for good."""
    apply_to_each(ids, _act("cancel", allowed=_LIVE, done="Canceled", already=_ENDED | {"STOPPING_CANCELED"}))


@experiment.command()
@IDS
def kill(ids: list[int]) -> None:
    """End the experiments at once, without a checkpoint."""

    def do(session: Any, experiment_id: int) -> str:
        from dethpc.client.nouns import experiments

        if experiments.act(session, experiment_id, "kill").get("changed", True):
            return f"Killed experiment {experiment_id}"
        return f"Experiment {experiment_id} is {_state(session, experiment_id)}: nothing to do"

    apply_to_each(ids, do)


@experiment.command()
@IDS
def archive(ids: list[int]) -> None:
    """Hide ended experiments from the list."""
    apply_to_each(ids, _act("archive", allowed=_ENDED, done="Archived", already=set()))


@experiment.command()
@IDS
def unarchive(ids: list[int]) -> None:
    """Show archived experiments in the list again."""
    apply_to_each(ids, _act("unarchive", allowed=_ENDED, done="Unarchived", already=set()))


@experiment.command()
@IDS
@YES
def delete(ids: list[int], yes: bool) -> None:
    """Delete ended experiments for good, with their checkpoints, TensorBoard files, logs, code and Python environments.

    A job on a compute node removes the files. Until then, the experiment is DELETING. If that fails, it is DELETE_FAILED with the
    reason and is retried automatically, or at once if you delete it again.
    """
    which = ", ".join(str(i) for i in ids)
    confirm(f"Delete experiment {which} for good, with its checkpoints and logs?", yes)

    def do(session: Any, experiment_id: int) -> str:
        from dethpc.client.nouns import experiments

        experiments.delete(session, experiment_id)
        return f"Deleting experiment {experiment_id}"

    apply_to_each(ids, do)


experiment.add_command(label)
experiment.add_command(set_attribute)


@experiment.command()
@ID
@click.argument("workspace_name", metavar="WORKSPACE")
@click.argument("project_name", metavar="PROJECT")
def move(experiment_id: int, workspace_name: str, project_name: str) -> None:
    """Move an experiment to another project."""
    from dethpc.client.nouns import workspaces

    session = connect()
    row = workspaces.project(session, workspace_name, project_name)
    workspaces.move_experiment(session, experiment_id, row["id"])
    output.echo(f"Moved experiment {experiment_id} to project {project_name} of workspace {workspace_name}")
