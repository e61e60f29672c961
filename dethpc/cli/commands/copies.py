"""``det experiment export`` and ``import``: move experiments between installations, and import runs that were submitted by hand."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import click

from dethpc import errors
from dethpc.cli import output
from dethpc.cli.arguments import EXPERIMENT
from dethpc.cli.commands import archives
from dethpc.cli.commands.archives import KINDS, Progress
from dethpc.cli.connect import connect
from dethpc.cli.group import Failed


@click.command("export")
@click.argument("experiment_id", metavar="EXPERIMENT", type=EXPERIMENT)
@click.argument("target", metavar="[ARCHIVE]", required=False)
@click.option(
    "--checkpoints",
    "kind",
    type=click.Choice(KINDS),
    default="none",
    show_default=True,
    help="Which checkpoints' files to include: the best one's, those of the latest of each trial, or all.",
)
@click.option("-f", "--force", is_flag=True, help="Replace an existing archive.")
@output.as_json
def export(experiment_id: int, target: Optional[str], kind: str, force: bool, as_json: bool) -> None:
    """Write an experiment into one archive: configuration, trials, metrics, logs, code and, if you wish, checkpoint files.

    ARCHIVE is a file, by default experiment-ID.zip, or a URL such as s3://bucket/folder/name.zip. Damaged checkpoints are named and
    left out; the exit status is then 1.
    """
    target = target or f"experiment-{experiment_id}.zip"
    with _written_to(target, force) as path, _progress() as progress:
        done = archives.export(connect(), experiment_id, path, kind, progress)
        size = path.stat().st_size
    if as_json:
        output.print_json({"archive": target, "bytes": size, "checkpoints": done.checkpoints, "leftOut": done.left_out})
    else:
        held = len(done.checkpoints)
        with_them = f", with {output.plural(held, 'checkpoint')}" if kind != "none" else ""
        output.echo(f"Experiment {experiment_id} is in {target} ({output.size(size)}{with_them})")
    if done.left_out:
        raise Failed([f"{why}; the archive is complete without its files" for why in done.left_out.values()])


@click.command("import")
@click.argument("path", metavar="PATH")
@click.option("--again", is_flag=True, help="Import an archive once more that was imported before.")
@output.as_json
def take_in(path: str, again: bool, as_json: bool) -> None:
    """Import an archive that det experiment export wrote, or the directory of a run that was submitted by hand.

    The experiment gets a new id, and its state is final here: look at it, fork it, or continue it.
    """
    if Path(path).is_dir():
        from dethpc.client.nouns import experiments

        answer = experiments.import_run(connect(), str(Path(path).resolve()))
    else:
        with _read_from(path) as archive, _progress() as progress:
            answer = archives.take_in(connect(), archive.resolve(), progress, again)
    if as_json:
        output.print_json(answer)
    elif answer.get("before"):
        output.echo(f"This archive is experiment {answer['experiment']['id']} already; to import it once more: --again")
    else:
        output.echo(f"Imported as experiment {answer['experiment']['id']}")


@contextlib.contextmanager
def _written_to(target: str, force: bool) -> Iterator[Path]:
    """Where to write what is to be in ``target``: the file itself, or one that goes to the URL afterwards."""
    if "://" not in target:
        path = Path(target)
        if path.exists() and not force:
            raise click.UsageError(f"{target} exists; give another name, or --force to replace it")
        if not path.absolute().parent.is_dir():
            raise click.UsageError(f"{path.absolute().parent} is no directory")
        yield path
        return
    remote, name = _remote(target)
    with _driver_errors_as_refusals(target):
        there = remote.exists(name)
    if there and not force:
        raise click.UsageError(f"{target} exists; give another name, or --force to replace it")
    with tempfile.TemporaryDirectory() as folder:
        yield (path := Path(folder, "archive.zip"))
        with _driver_errors_as_refusals(target):
            remote.put_file(str(path), name)


@contextlib.contextmanager
def _read_from(source: str) -> Iterator[Path]:
    if "://" not in source:
        if not Path(source).is_file():
            raise click.UsageError(f"{source} is neither an archive nor a run directory")
        yield Path(source)
        return
    remote, name = _remote(source)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "archive.zip")
        with _driver_errors_as_refusals(source):
            remote.get_file(name, str(path))
        yield path


@contextlib.contextmanager
def _driver_errors_as_refusals(url: str) -> Iterator[None]:
    """Each driver has errors of its own for what does not answer, is not there or is not allowed."""
    try:
        yield
    except Exception as error:
        raise errors.Refused(f"{url}: {str(error) or type(error).__name__}") from error


def _remote(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path there."""
    try:
        import fsspec
    except ImportError:
        raise click.UsageError(f"{url} needs the driver of its storage: pip install 'dethpc[s3]'") from None
    try:
        remote, name = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise click.UsageError(f"{url}: {error}") from None
    return remote, name


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """On a terminal, a bar for what is being done."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)

        def report(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total or None)

        yield report
