"""``det doctor``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import click

from dethpc.cli import output
from dethpc.cli.arguments import Number

if TYPE_CHECKING:
    from dethpc.doctor import Finding

_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}


@click.command()
@click.option("--check-nodes", is_flag=True, help="Send a small job to each pool and check its node.")
@click.option("--pool", "pools", multiple=True, metavar="NAME", help="With --check-nodes: only this pool (repeatable).")
@click.option(
    "--timeout",
    type=Number(min=1),
    default=300.0,
    show_default=True,
    help="With --check-nodes: seconds to wait for the small jobs.",
)
@click.option(
    "--site",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check this site configuration [default: the one a master would use].",
)
@click.option("-q", "--quiet", is_flag=True, help="Show only warnings and errors.")
@output.as_json
def doctor(
    check_nodes: bool, pools: tuple[str, ...], timeout: float, site: Optional[Path], quiet: bool, as_json: bool
) -> None:
    """Check this site and this installation for problems.

    Says what was found, what dethpc does about it, and what you could change. Does not start a master.
    The exit code is 1 if there is an error.
    """
    from dethpc.client import home
    from dethpc.config.site import find_site, load_site
    from dethpc.doctor import Level, examine
    from dethpc.doctor.read import read
    from dethpc.doctor.read_nodes import CheckNodes

    if pools and not check_nodes:
        raise click.UsageError("--pool only works with --check-nodes.")
    root = home().absolute()
    configuration = load_site(site or find_site(os.environ, root))
    with _progress() as tell:
        facts = read(root, configuration, CheckNodes(pools, timeout, tell) if check_nodes else None)
    findings = list(examine(facts))
    if site is None:
        _keep(root, findings)
    shown = [f for f in findings if not quiet or f.level in (Level.WARNING, Level.ERROR)]
    if as_json:
        output.print_json([finding.to_json() for finding in shown])
    else:
        for finding in shown:
            _print(finding)
        counts = {level.value: sum(finding.level is level for finding in findings) for level in reversed(Level)}
        click.echo(
            ", ".join(f"{count} {name}{'' if name == 'ok' or count == 1 else 's'}" for name, count in counts.items())
        )
    if any(finding.level is Level.ERROR for finding in findings):
        raise click.exceptions.Exit(1)


def _keep(root: Path, findings: list[Finding]) -> None:
    """For the master's page, where one has been: else a doctor leaves nothing behind."""
    from dethpc.doctor import report
    from dethpc.rundir.home import Home

    home = Home(root)
    with contextlib.suppress(OSError):  # a home that cannot be written is among the findings
        if home.log.exists():
            report.keep(home, findings)


def _print(finding: Finding) -> None:
    level = finding.level.value
    texts = [output.plain(finding.found)]
    if level != "ok":
        texts += [f"{word}: {text}" for word, text in (("dethpc", finding.dethpc), ("change", finding.change)) if text]
    first, *rest = (line for text in texts for line in _indented(text))
    click.echo(f"{output.styled(f'{level:<7}', fg=_COLOURS[level])}  {finding.check:<11}  {first.lstrip()}")
    for line in rest:
        output.echo(line)


def _indented(text: str) -> list[str]:
    first, *rest = output.wrapped(text, _INDENT)
    return [" " * _INDENT + first, *rest]


_INDENT = 22  # where what was found begins


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A function that shows what is being waited for: a spinner on a terminal, else each new line once."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("asking Slurm ...") as status:
            yield lambda text: status.update(f"{text} ...")
        return
    printed = set[str]()

    def tell(text: str) -> None:
        if text not in printed:
            printed.add(text)
            output.say(text)

    yield tell
