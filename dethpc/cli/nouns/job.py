"""``det job``: the queue in front of the scheduler."""

from __future__ import annotations

from typing import Any, Optional

import click

from dethpc.cli import output, tables
from dethpc.cli.arguments import PAGES, PROJECT, Number, listing
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup
from dethpc.cli.nouns.pool import no_pool
from dethpc.cli.output import Json


@click.group(cls=LazyGroup, invoke_without_command=True, aliases={"u": "update"})
@click.pass_context
def job(ctx: click.Context) -> None:
    """Show and change the order in which jobs get their slots. Without a command: list them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_jobs)


@job.command("list")
@click.option("-p", "--resource-pool", metavar="POOL", help="Show this pool's queue [default: the default pool's].")
@click.option("-w", "--workspace-name", metavar="NAME", help="Only jobs of this workspace.")
@click.option("--project", type=PROJECT, metavar="ID", help="Only jobs of this project (id or name).")
@click.option("--why", is_flag=True, help="Show what each job's trials wait for, and what would start them sooner.")
@click.option("--limit", type=click.IntRange(0), default=0, help="At most this many (0: all).")
@click.option("--offset", type=click.IntRange(0), default=0, help="Skip this many.")
@click.option("--reverse", is_flag=True, help="The last of the queue first.")
@click.option("--table", is_flag=True, expose_value=False, hidden=True, help="Accepted for compatibility: it is one.")
@PAGES
@output.as_yaml
@listing
def list_jobs(
    resource_pool: Optional[str], why: bool, limit: int, offset: int, reverse: bool, layout: tables.Layout, **where: Any
) -> None:
    """List the jobs that want slots, in the order in which they get them; jobs that have ended are left out."""
    from dethpc.client.nouns import cluster, jobs, workspaces

    session, workspace = connect(), where.get("workspace_name")
    rows, queue_order = jobs.queue(
        session,
        resource_pool,
        projectId=where.get("project"),
        workspaceId=workspaces.workspace(session, workspace)["id"] if workspace else None,
    )
    if resource_pool and not rows:
        pools = [pool["name"] for pool in cluster.resource_pools(session)]
        if resource_pool not in pools:
            raise no_pool(resource_pool, pools)
    ids = short([str(j["jobId"]) for j in rows])
    rows = rows[:: -1 if reverse else 1][offset:][: limit or None]
    waits = jobs.waiting(session) if why else {}
    if why:
        for j in rows:
            j["waiting"] = waits.get(str(j["jobId"]))
    fair = queue_order == "fair_share"
    columns = [
        tables.Column("#", lambda j: j["summary"]["jobsAhead"], tables.COUNT),
        tables.Column("ID", lambda j: ids[str(j["jobId"])]),
        tables.Column("Experiment", _experiment, tables.COUNT, heading="Exp"),
        tables.Column("Type", "type", _TYPE, rank=4),
        tables.Column("Job Name", "name", heading="Name", least=12),
        tables.Column("Weight" if fair else "Priority", "weight" if fair else "priority", tables.COUNT, rank=2),
        tables.Column("Submitted", "submissionTime", tables.AGE, rank=1),
        tables.Column("Slots (acquired/needed)", _slots, heading="Slots"),
        tables.Column("Status", lambda j: j["summary"]["state"], _STATUS),
        tables.Column("User", "username", rank=5, least=8),
        *([tables.Column("Waiting for", lambda j: _waiting(j["waiting"]), terminal=False)] if why else []),
    ]
    # a terminal has no room for sentences in a table: they stand below it
    reasons = [f"{_called(j, ids)}: {_waiting(j['waiting'])}" for j in rows if why and j["waiting"]]
    tables.show(tables.Table(columns, rows, below=reasons), layout, {"jobs": rows})


def _called(job: Json, ids: dict[str, str]) -> str:
    return f"experiment {_experiment(job)}" if _experiment(job) else ids[str(job["jobId"])]


def _experiment(job: Json) -> str:
    return str(job["entityId"]) if job.get("type") == "TYPE_EXPERIMENT" else ""


def _slots(job: Json) -> str:
    return f"{job['allocatedSlots']}/{job['requestedSlots']}"


_TYPE = tables.Kind(lambda kind: output.plain(kind).removeprefix("TYPE_").lower())
_STATUS = tables.Kind(output.state)  # in full: Determined's word, as in its own table


def _waiting(waits: Optional[Json]) -> str:
    """What most of its trials wait for; how many do, when not all wait for the same."""
    if not waits:
        return ""
    first = waits["groups"][0]
    return (
        str(first["text"])
        if first["count"] == waits["count"]
        else f"{first['count']} of {waits['count']}: {first['text']}"
    )


def short(ids: list[str]) -> dict[str, str]:
    """The first eight letters of each id, or more where they would be the same."""
    length = 8
    while len({id[:length] for id in ids}) < len(set(ids)):
        length += 4
    return {id: id[:length] for id in ids}


@job.command()
@click.argument("job_id", metavar="ID")
@click.option(
    "-p", "--priority", type=click.IntRange(1, 99), help="New priority, 1 (first) to 99 (last); priority pools only."
)
@click.option("-w", "--weight", type=Number(0, min_open=True), help="New weight; fair-share pools only.")
@click.option("--resource-pool", metavar="POOL", help="Move to this pool; runs that have started stay.")
@click.option(
    "--ahead-of", metavar="ID", help="Move directly ahead of this job, with its priority; priority pools only."
)
@click.option(
    "--behind-of", metavar="ID", help="Move directly behind this job, with its priority; priority pools only."
)
def update(job_id: str, **wishes: Any) -> None:
    """Change one property of a queued job. ID: its experiment's number, or the beginning of its own id."""
    from dethpc.client.nouns import jobs

    given = {name: value for name, value in wishes.items() if value is not None}
    if len(given) != 1:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given) or "none"
        raise click.UsageError(f"say one of {', '.join(f'--{n}' for n in _OPERATIONS)}; found {options}")
    (name, value), *_ = given.items()
    wished = {"jobId": job_id, _OPERATIONS[name.replace("_", "-")]: value}
    jobs.update(connect(), [wished])
    output.echo(_done(wished))


def _done(wished: Json) -> str:
    """``Set the priority of job 48 to 2``."""
    job_id, (field, value) = wished["jobId"], next(item for item in wished.items() if item[0] != "jobId")
    value = f"{value:g}" if isinstance(value, float) else value
    return {
        "priority": f"Set the priority of job {job_id} to {value}",
        "weight": f"Set the weight of job {job_id} to {value}",
        "resourcePool": f"Moved job {job_id} to the resource pool {value}",
        "aheadOf": f"Moved job {job_id} ahead of job {value}",
        "behindOf": f"Moved job {job_id} behind job {value}",
    }[field]


_OPERATIONS = {
    "priority": "priority",
    "weight": "weight",
    "resource-pool": "resourcePool",
    "ahead-of": "aheadOf",
    "behind-of": "behindOf",
}


@job.command("update-batch")
@click.argument("operations", metavar="ID.OPERATION=VALUE...", nargs=-1, required=True)
def update_batch(operations: tuple[str, ...]) -> None:
    """Change several jobs in this order, either all of them or none.

    \b
    For example: det job update-batch job1.priority=1 job2.resource-pool="compute" job3.ahead-of=job1
    """
    from dethpc.client.nouns import jobs

    wished = [_operation(text) for text in operations]  # a mistake is told without starting a master
    jobs.update(connect(), wished)
    for one in wished:
        output.echo(_done(one))


def _operation(text: str) -> Json:
    job_id, dot, rest = text.partition(".")
    name, equals, value = rest.partition("=")
    field = _OPERATIONS.get(name.replace("_", "-"))
    if not (job_id and dot and equals and value and field):
        form = f"ID.OPERATION=VALUE, where OPERATION is one of {', '.join(_OPERATIONS)}"
        raise click.BadParameter(f"{text!r} is not {form}")
    if field not in ("priority", "weight"):
        return {"jobId": job_id, field: value}
    try:
        return {"jobId": job_id, field: int(value) if field == "priority" else float(value)}
    except ValueError:
        raise click.BadParameter(f"there must be a number after {name}= in {text!r}") from None
