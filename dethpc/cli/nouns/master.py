"""``det master``: start, stop and inspect the master."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Optional

import click

from dethpc import errors
from dethpc.cli import from_determined, master_process, output, tables
from dethpc.cli.arguments import YES, Number, confirm
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup, NotHere
from dethpc.rundir.home import Home


@click.group(cls=LazyGroup)
def master() -> None:
    """Start, stop and inspect the master.

    There is one master for each user and cluster; det starts it when it is needed. It may be stopped, or die, at any time:
    trials continue, and the next master picks up where it left off.
    """


@master.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Listen on this port [default: any free one].")
@click.option("--host", metavar="ADDRESS", help="Listen on this address (with --foreground or --slurm).")
@click.option("--foreground", is_flag=True, help="Run in this terminal until Ctrl-C.")
@click.option("--slurm", is_flag=True, help="Run the master as a Slurm job.")
@click.option(
    "--sbatch-arg", "sbatch_args", multiple=True, metavar="ARG", help="With --slurm: an option for sbatch (repeatable)."
)
def up(port: Optional[int], host: Optional[str], foreground: bool, slurm: bool, sbatch_args: tuple[str, ...]) -> None:
    """Start the master unless it is already running."""
    root = _home()
    if foreground and slurm:
        raise click.UsageError("--foreground and --slurm are mutually exclusive; use one of them.")
    url = master_process.read_master_file(root).get("url")
    if url and master_process.answers(url):
        output.echo(f"A master is already running: {url}")
        return
    if foreground:
        if master_process.section_of_a_job(root) is not None:
            raise errors.Refused(
                "this site runs masters as Slurm jobs only (master.where: slurm): det master up submits one"
            )
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        argv = master_process.command(root, port, host)
        os.chdir(master_process.folder())
        os.execve(argv[0], argv, master_process.environment())
    elif slurm:
        from dethpc.cli import master_job

        site = master_process.site(root).master
        master_job.up(root, port=port, host=host, sbatch_args=[*site.sbatch_args, *sbatch_args])
    elif host is not None:
        raise click.UsageError(
            "--host goes with --foreground or --slurm; a master in the background listens where trials reach it."
        )
    else:
        master_process.up(port=port)


@master.command()
@click.option("--timeout", type=Number(0), default=30.0, show_default=True, help="Seconds to wait for it to stop.")
def down(timeout: float) -> None:
    """Stop your master. Trials continue; the next master reads their reports."""
    pid = master_process.stop(_home(), timeout)
    output.echo("No master is running" if pid is None else f"Stopped the master (pid {pid})")


@master.command("take-over")
@YES
def take_over(yes: bool) -> None:
    """Declare that runs are over of which the master can learn nothing.

    Their jobs are at a scheduler that it does not serve, such as another machine's or another cluster's, or that gives no answer.
    Their trials start again from their last checkpoints. Use it only when you know that those jobs have ended: a machine that is
    gone for good, a cluster that was removed.
    """
    from dethpc.client.nouns import cluster

    session = connect()
    runs = cluster.runs_elsewhere(session)
    if not runs:
        output.echo("There is no run of which the master cannot learn what became of it")
        return
    tables.show(tables.plain(["Run", "Job", "At"], [(r["runId"], r["jobId"], r["scheduler"]) for r in runs]))
    output.say(
        "These runs are then taken to be over. If one of them still runs, its trial is trained twice from now on."
    )
    confirm("Have all of these jobs ended?", yes)
    given_up = cluster.take_over(session)
    output.echo(f"Counted as over: {len(given_up)}. Their trials start again from their last checkpoints")


@master.group("cluster-message", cls=LazyGroup)
def cluster_message() -> None:
    """Show, set and clear the message to all users of this master."""


@cluster_message.command("get")
@output.as_yaml
@output.as_json
def get_message(as_json: bool) -> None:
    """Show the message that counts now, or will."""
    from dethpc.client.nouns import resources

    message = resources.message(connect())
    if as_json:
        output.print_json({"clusterMessage": message})
    elif message is None:
        output.say("There is no message")
    else:
        until = f" until {message['endTime']}" if message.get("endTime") else ""
        output.echo(f"{message['message']}\n(from {message['startTime']}{until})")


@cluster_message.command("set")
@click.option("-m", "--message", metavar="TEXT", required=True, help="At most 250 characters.")
@click.option("-s", "--start", metavar="TIME", help="When it begins to count, as 2026-01-31T12:00:00Z. Default: now.")
@click.option("-e", "--end", metavar="TIME", help="When it ends. Default: never.")
@click.option("-d", "--duration", metavar="TIME", help="How long it counts, such as 24h, in place of --end.")
def set_message(message: str, start: Optional[str], end: Optional[str], duration: Optional[str]) -> None:
    """Set the message, in the place of the one there was. det master info and each page show it."""
    import datetime

    from dethpc.client.nouns import resources

    begin = start or datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
    resources.set_message(connect(), message, begin, end=end, duration=duration)
    output.echo("Set the message")


@cluster_message.command("clear")
@click.option(
    "-c", "--clear", is_flag=True, expose_value=False, hidden=True, help="Accepted for compatibility: it does."
)
def clear_message() -> None:
    """Clear the message."""
    from dethpc.client.nouns import resources

    resources.clear_message(connect())
    output.echo("Cleared the message")


@master.command()
@output.as_yaml
@output.as_json
def info(as_json: bool) -> None:
    """Show which scheduler the master serves, where it runs, since when, and whose files it uses."""
    from dethpc.cli import own_master
    from dethpc.cli.connect import named_master
    from dethpc.client.nouns import cluster

    session = connect()
    about = cluster.master(session)
    try:
        config = cluster.master_config(session)
    except errors.DethpcError:  # only its owner may know
        config = {}
    lease = {} if named_master() else Home(_home()).own_master()
    if as_json:
        output.print_json({"url": session.url, **about, "home": config.get("home"), "lease": lease})
        return
    output.print_fields(
        [
            ("Address", session.url),
            ("Listens on", _listening(config.get("listening") or {})),
            ("Scheduler", own_master.scheduler(lease) or config.get("scheduler")),
            ("Host", lease.get("host")),
            ("Process", lease.get("pid")),
            ("Since", output.when(about.get("startedAt"))),
            ("Home", config.get("home")),
            ("Site file", config.get("site_file") or "none"),
            ("Pools", ", ".join(config.get("pools") or {})),
            ("Cluster", f"{about.get('clusterName')} ({about.get('clusterId')})"),
            ("Version", f"{about.get('dethpcVersion')}, speaks the API of Determined {about.get('version')}"),
            ("Trouble", about.get("trouble")),
            ("Notice", about.get("notice")),
            ("Message", (about.get("clusterMessage") or {}).get("message")),
        ]
    )
    if message := own_master.serves_another(lease, os.environ):
        output.say(f"det: warning: {message}")


def _listening(listening: dict[str, Any]) -> Optional[str]:
    return f"{', '.join(listening['hosts'])} ({listening['why']})" if listening.get("hosts") else None


@master.command()
def certificate() -> None:
    """Print the file of the TLS certificate that your master made, for programs other than det.

    The published client takes it as DET_MASTER_CERT_FILE, curl as --cacert.
    """
    home = Home(_home())
    if not home.own_master().get("url"):
        connect()
    shown = home.own_master()
    if not shown.get("certificate"):
        raise errors.Refused(
            f"the master at {shown.get('url')} uses plain HTTP: there is no certificate. It uses TLS if it listens beyond "
            "loopback, or if the site configuration says master.tls: on"
        )
    if not home.made_certificate(str(shown["certificate"])):
        raise errors.Refused(
            f"the master at {shown.get('url')} uses the site's own certificate (SHA-256 {shown['certificate']}): other programs "
            "verify it with the file of the authority that signed it"
        )
    output.echo(home.certificate)


@master.command(context_settings={"ignore_unknown_options": True})
@click.argument("argv", metavar="[show]", nargs=-1)
@output.as_yaml
@output.as_json
def config(argv: tuple[str, ...], as_json: bool) -> None:
    """Show the master's configuration."""
    from dethpc.client.nouns import cluster

    if argv not in ((), ("show",)):
        if sentence := from_determined.instead(["master", "config", *argv]):
            raise NotHere([sentence])
        raise click.UsageError(f"No such argument or option: {argv[0]}")

    settings = cluster.master_config(connect())
    output.print_config(settings, as_json)


@master.command()
@click.option("-f", "--follow", is_flag=True, help="Follow the log.")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="Only the last N lines.")
def logs(follow: bool, tail: Optional[int]) -> None:
    """Show the master's log: from the running master, or else from the file that the last one left."""
    from dethpc.client.nouns import cluster

    try:
        session = connect(start=False)
        for entry in cluster.master_logs(session, follow=follow, tail=tail):
            level = str(entry.get("level") or "").removeprefix("LOG_LEVEL_")
            output.echo(f"{output.when(entry.get('timestamp'))} {level}: {str(entry.get('message', '')).rstrip()}")
    except errors.MasterUnreachable:
        log = Home(_home()).log
        if follow or not log.exists():
            raise
        text = log.read_text(errors="replace")
        output.say(f"no master is running; this is the last one's log: {log}")
        output.echo(master_process.last_lines(text, tail) if tail else text, nl=bool(tail))
    except KeyboardInterrupt:
        output.say("\nStopped watching. To watch again: det master logs -f")
        raise click.exceptions.Exit(130) from None


@master.command()
@YES
def rebuild(yes: bool) -> None:
    """Recreate the state database from the files on the shared file system. The master must be down."""
    root = _home()
    _must_be_down(root)
    confirm(f"Recreate the database of {root} from its experiments and runs? The old database is kept.", yes)
    import subprocess

    done = subprocess.run(
        [*master_process.command(root), "--rebuild"],
        cwd=master_process.folder(),
        env=master_process.environment(),
        check=False,
    )
    raise click.exceptions.Exit(1 if done.returncode else 0)


@master.command()
@click.option("--mend", is_flag=True, help="First rewrite damaged change logs from the database.")
@output.found_as_json
def check(as_json: bool, mend: bool) -> None:
    """Compare the database with the change logs, journals, run directories and checkpoints. A master may run.

    It changes nothing, except with --mend: then the master must be down. The exit code is 1 when something differs.
    """
    root = _home()
    if mend:
        _must_be_down(root)
    import subprocess

    done = subprocess.run(
        [*master_process.command(root), "--check", *["--mend"] * mend],
        cwd=master_process.folder(),
        env=master_process.environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise click.exceptions.Exit(1)
    report = json.loads(done.stdout)
    for path in () if as_json else report["mended"]:
        output.say(f"{path}: rewritten from the database; the old file is beside it")
    if as_json:
        output.print_json(report)
    elif report["differences"]:
        rows = [(d["experimentId"], d["where"], d["what"]) for d in report["differences"]]
        tables.show(tables.plain(["Experiment", "Where", "What differs"], rows))
        differences = output.plural(len(rows), "difference")
        if not mend and any(d["where"] == "change log" for d in report["differences"]):
            output.say(
                "To rewrite change logs that are damaged or lack what the database has: "
                "det master down; det master check --mend"
            )
        if any(d["where"] in ("database", "change log", "journal") for d in report["differences"]):
            output.say(
                f"{differences}; det master rebuild recreates the database from the files; what only the database has is lost"
            )
        elif any(d["where"] in ("run directory", "checkpoint", "archive") for d in report["differences"]):
            output.say(f"{differences}; a rebuild cannot restore what is missing there, only a backup can")
        else:
            output.say(differences)
    else:
        output.echo(f"The database and the files agree ({report['experiments']} experiments)")
    raise click.exceptions.Exit(1 if report["differences"] else 0)


def _must_be_down(root: Path) -> None:
    url = master_process.read_master_file(root).get("url")
    if url and master_process.answers(url):
        raise errors.Refused(f"a master is running at {url}; stop it first: det master down")


def _home() -> Path:
    from dethpc.client import home

    return home().absolute()
