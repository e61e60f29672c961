"""Experiments made from earlier ones: ``det experiment continue`` and ``fork``, ``det trial continue``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import click

from dethpc import errors
from dethpc.cli import output
from dethpc.cli.arguments import ID, number
from dethpc.cli.commands.create import (
    CONFIG_FILE,
    CONTEXT_DIR,
    FOLLOW,
    INCLUDES,
    OVERRIDES,
    PAUSED,
    check_script,
    checked,
    follow_first_trial,
    located,
    packed,
    read_config,
    send,
    tell,
    warn,
)
from dethpc.cli.connect import connect
from dethpc.cli.output import Json


@click.command("continue")
@ID
@CONFIG_FILE
@OVERRIDES
@click.option("-f", "--follow", "--follow-first-trial", is_flag=True, help="Follow the log of its first trial.")
def go_on(experiment_id: int, config_file: Any, overrides: Sequence[str], follow: bool) -> None:
    """Continue an experiment that has ended: the same experiment and trials, each from its latest checkpoint."""
    from dethpc.client.nouns import experiments
    from dethpc.config import with_overrides

    text = read_config(config_file) if config_file else ""
    if overrides:
        text = with_overrides(text, overrides, file=config_file.name if config_file else "--config")
    answer = experiments.go_on(connect(), experiment_id, text)
    output.echo(f"Continued experiment {experiment_id}")
    warn(answer)
    if follow:
        follow_first_trial(experiment_id)
    else:
        output.say(f"next: det experiment wait {experiment_id} shows how it goes")


@click.command()
@ID
@CONTEXT_DIR
@CONFIG_FILE
@OVERRIDES
@INCLUDES
@PAUSED
@FOLLOW
@output.as_json
def fork(
    experiment_id: int,
    context_dir: Optional[Path],
    config_file: Any,
    overrides: Sequence[str],
    includes: Sequence[Path],
    paused: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Create an experiment with the configuration of another one, and that one's files or those in CONTEXT_DIR."""
    from dethpc.client.nouns import experiments
    from dethpc.config.forked import forked

    config = forked(experiments.get(connect(), experiment_id)["config"])
    options = (context_dir, includes, config_file, overrides)
    _create(experiment_id, config, options, paused=paused, follow=follow, as_json=as_json)


@click.command("continue")
@click.argument("trial_id", metavar="ID", type=number)
@CONTEXT_DIR
@CONFIG_FILE
@OVERRIDES
@INCLUDES
@click.option("--checkpoint", metavar="UUID", help="Start from this checkpoint, not from the trial's latest.")
@PAUSED
@FOLLOW
@output.as_json
def continue_trial(
    trial_id: int,
    context_dir: Optional[Path],
    config_file: Any,
    overrides: Sequence[str],
    includes: Sequence[Path],
    checkpoint: Optional[str],
    paused: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Create an experiment of one trial that has a trial's hyperparameters and starts from its latest checkpoint."""
    from dethpc.client.nouns import experiments, trials
    from dethpc.config.forked import of_trial

    session = connect()
    trial = trials.get(session, trial_id)
    parent = int(trial["experimentId"])
    original = experiments.get(session, parent)["config"]
    config = of_trial(original, trial.get("hparams") or {}, trial_id, checkpoint)
    options = (context_dir, includes, config_file, overrides)
    _create(parent, config, options, paused=paused, follow=follow, as_json=as_json)


def _create(
    parent: int,
    config: Json,
    changes: tuple[Optional[Path], Sequence[Path], Any, Sequence[str]],
    *,
    paused: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """``config`` is what the new experiment would be without ``changes``: its files, and fields of its configuration."""
    from dethpc.config import dump, merged

    context_dir, includes, config_file, overrides = changes
    if paused and follow:
        raise click.UsageError("--paused and --follow are mutually exclusive: a paused experiment writes no log.")
    if includes and context_dir is None:
        raise click.UsageError("--include adds to the files of CONTEXT_DIR; without it the original's files are taken.")
    name = config_file.name if config_file else f"the configuration of experiment {parent}"
    text = merged(read_config(config_file), config, file=name) if config_file else dump(config)
    loaded, text = checked(text, name, overrides, warnings=_warnings_of(config))
    with located(loaded.source):
        files = packed(context_dir, includes) if context_dir else []
        if context_dir:
            if not files:
                raise errors.ContextError(f"{context_dir} has no file to send")
            check_script(loaded.config.entrypoint, [file["path"] for file in files], context_dir)
        answer = send(text, files, activate=not paused, parent=parent)
    tell(answer, paused=paused, follow=follow, as_json=as_json)


def _warnings_of(config: Json) -> list[str]:
    """The warnings about ``config``, which its owner has had: it has all defaults spelled out, and some of them have warnings."""
    from dethpc.config import dump, load

    try:
        return load(dump(config), file="").warnings
    except errors.ConfigError:  # what is missing in it may be among the changes
        return []
