"""``det run-local``: a whole experiment on this machine, by the embedded scheduler, with a master that ends with it.

It has a home of its own inside of the user's: nothing of the user's own master, site or Slurm takes part. Of several at once
the first starts the master, the last stops it, and they share this machine's slots.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

import click

from dethpc import errors
from dethpc.cli import interpreter, master_process, output, tables
from dethpc.cli.commands import create, wait
from dethpc.cli.connect import connect
from dethpc.cli.group import Settings
from dethpc.rundir.process import lives

if TYPE_CHECKING:
    from dethpc.config import Loaded

_SITE = "scheduler: local\n"
_OURS = ("DET_MASTER", "DET_USER", "DET_USER_TOKEN", "DETHPC_SITE_CONFIG")


@click.command("run-local")
@click.argument("config", metavar="CONFIG", type=click.File(encoding="utf-8"))
@click.argument("context_dir", metavar="[CONTEXT_DIR]", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--config", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a field (repeatable).")
@click.option(
    "-i",
    "--include",
    "includes",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Also use this file or directory (repeatable).",
)
@click.option(
    "--slots",
    type=click.IntRange(1),
    metavar="N",
    help="Slots of this machine [default: its GPUs, or its cores if it has none].",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep everything in this directory [default: local in DETHPC_HOME].",
)
@output.as_json
@click.pass_context
def run_local(
    ctx: click.Context,
    config: Any,
    context_dir: Optional[Path],
    overrides: Sequence[str],
    includes: Sequence[Path],
    slots: Optional[int],
    home: Optional[Path],
    as_json: bool,
) -> None:
    """Run a whole experiment on this machine, and wait for its end.

    Slurm is not used even if there is one, and no master is left running. Ctrl-C kills the experiment.

    Exit codes: 0 completed; 1 it ended with an error, or the request failed; 3 canceled or killed; 130 interrupted.
    """
    text = create.read_config(config)
    overrides = [*overrides, "resources.resource_pool=null"]  # of the cluster; this machine is one pool
    loaded, checked = create.checked(text, config.name, overrides)
    files = create.packed(context_dir, includes)
    ctx.obj = Settings()  # of what was named before the noun, no master counts here
    with _master(home, slots) as root:
        state, result = _run(loaded, checked, files, slots, as_json)
        if as_json:
            output.print_json({**result, "home": str(root)})
    raise click.exceptions.Exit(wait.EXIT_CODES.get(state, 1))


def _run(
    loaded: Loaded,
    checked: str,
    files: list[dict[str, Any]],
    slots: Optional[int],
    as_json: bool,
) -> tuple[str, dict[str, Any]]:
    """The state in which the experiment ended, and what the API says of it and its trials."""
    from dethpc.client.nouns import experiments

    with _starting(slots):
        session = connect()
        try:
            with create.located(loaded.source):
                answer = experiments.create(session, checked, files)
        except errors.ConfigError as error:
            for problem in error.problems:
                if problem.field == "resources.slots_per_trial":
                    problem.hint = "--slots gives this machine as many as you say"
            raise
    if sentence := interpreter.sentence(answer):
        output.say(sentence)
    number = int(answer["experiment"]["id"])
    try:
        state = wait.until_ended(number, to_stderr=as_json)
    except BaseException as interrupted:
        experiments.act(session, number, "kill")
        wait.quietly(number)
        if isinstance(interrupted, KeyboardInterrupt):
            output.say(f"\nKilled experiment {number}")
            raise click.exceptions.Exit(130) from None
        raise
    about = {**experiments.get(session, number), "trials": list(experiments.trials(session, number))}
    if not as_json:
        from dethpc.cli.trial_table import trial_table

        output.echo("")
        tables.show(trial_table(about, about["trials"]))
        output.say(f"\nTo see more: DETHPC_HOME={os.environ['DETHPC_HOME']} det experiment describe {number}")
    return state, about


@contextmanager
def _master(folder: Optional[Path], slots: Optional[int]) -> Iterator[Path]:
    """Have all of det use the home of local experiments; stop its master afterwards, unless another experiment needs it or it
    was there before."""
    from dethpc.client import home

    root = (folder or home() / "local").absolute()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    site = root / "site.yaml"
    if not site.exists():
        site.write_text(_SITE)
    for name in _OURS:
        os.environ.pop(name, None)
    os.environ.update(DETHPC_HOME=str(root), DETHPC_SCHEDULER="local")
    if slots is not None:
        os.environ["DETHPC_LOCAL_SLOTS"] = str(slots)
    try:
        yield root
    finally:
        _stop_unless_needed(root)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Nobody stops a master that another one is about to use."""
    with open(root / "run-local.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _starting(slots: Optional[int]) -> Iterator[None]:
    """Note whose the master is that gets started here."""
    root = Path(os.environ["DETHPC_HOME"])
    with _locked(root):
        before = master_process.read_master_file(root)
        lived = lives(before)
        if lived and slots is not None:
            output.say("det: warning: --slots has no effect while other experiments run here")
        try:
            yield
        finally:
            if not lived:
                (root / "run-local.pid").write_text(str(master_process.read_master_file(root).get("pid")))


def _stop_unless_needed(root: Path) -> None:
    from dethpc.client import Session, token
    from dethpc.client.nouns import experiments

    with _locked(root):
        held, mine = master_process.read_master_file(root), root / "run-local.pid"
        if not lives(held) or not mine.exists() or mine.read_text() != str(held.get("pid")):
            return
        session = Session(held["url"], token(held["url"]))
        live = ["STATE_ACTIVE", "STATE_RUNNING", "STATE_QUEUED", "STATE_STARTING", "STATE_PULLING"]
        live += ["STATE_STOPPING_CANCELED", "STATE_STOPPING_COMPLETED", "STATE_STOPPING_ERROR", "STATE_STOPPING_KILLED"]
        if not experiments.listing(session, experiments.Filter(states=live), limit=1)["experiments"]:
            master_process.stop(root)
