"""``det experiment label`` and ``set``: change an experiment's attributes."""

from __future__ import annotations

from typing import Any

import click

from dethpc.cli import output
from dethpc.cli.arguments import ID, YES, Number, days_of_logs, kept_for
from dethpc.cli.connect import connect
from dethpc.cli.group import LazyGroup


@click.group(cls=LazyGroup)
def label() -> None:
    """Add and remove labels."""


@label.command("add")
@ID
@click.argument("label")
def add_label(experiment_id: int, label: str) -> None:
    """Add a label."""
    from dethpc.client.nouns import experiments

    experiments.relabel(connect(), experiment_id, add=[label])
    output.echo(f"Added label {label!r} to experiment {experiment_id}")


@label.command("remove")
@ID
@click.argument("label")
def remove_label(experiment_id: int, label: str) -> None:
    """Remove a label."""
    from dethpc.client.nouns import experiments

    if experiments.relabel(connect(), experiment_id, remove=[label]):
        output.echo(f"Removed label {label!r} from experiment {experiment_id}")
    else:
        output.echo(f"Experiment {experiment_id} has no label {label!r}")


@click.group("set", cls=LazyGroup)
def set_attribute() -> None:
    """Change an attribute of an experiment."""


def _set(experiment_id: int, attribute: str, value: Any, **fields: Any) -> dict[str, Any]:
    """The experiment as it is then."""
    from dethpc.client.nouns import experiments

    answer = experiments.patch(connect(), experiment_id, **fields)
    output.echo(f"Set {attribute} of experiment {experiment_id} to {'none' if value is None else repr(value)}")
    return answer.get("experiment") or {}


@set_attribute.command("name")
@ID
@click.argument("name")
def set_name(experiment_id: int, name: str) -> None:
    """Set the name."""
    _set(experiment_id, "name", name, name=name)


@set_attribute.command("description")
@ID
@click.argument("description")
def set_description(experiment_id: int, description: str) -> None:
    """Set the description."""
    _set(experiment_id, "description", description, description=description)


@set_attribute.command("max-slots")
@ID
@click.argument("max_slots", metavar="N|none")
def set_max_slots(experiment_id: int, max_slots: str) -> None:
    """Set how many slots all trials together may use; "none" lifts the limit."""
    if max_slots.lower() in ("none", "null"):
        number = None
    elif max_slots.isdigit():
        number = int(max_slots)
    else:
        raise click.BadParameter(f"must be a number of slots or none, not {max_slots!r}")
    from dethpc.domain.trial_config import TrialConfig

    changed = _set(experiment_id, "max-slots", number, resources={"maxSlots": number})
    config = TrialConfig.from_json(changed.get("config") or {})
    slots = config.slots_per_trial
    if number is None and config.max_slots is not None:
        output.say(f"note: max-slots is {config.max_slots}, because a config policy says so")
    if number is not None and number < slots:
        output.say(
            f"note: a trial of experiment {experiment_id} needs {output.plural(slots, 'slot')}: none starts while "
            f"max-slots is {number}, and those that run save a checkpoint and wait; "
            f"det experiment set max-slots {experiment_id} {slots} lets one run"
        )


@set_attribute.command("weight")
@ID
@click.argument("weight", type=Number(0, min_open=True))
def set_weight(experiment_id: int, weight: float) -> None:
    """Set the weight (fair-share pools)."""
    _set(experiment_id, "weight", weight, resources={"weight": weight})


@set_attribute.command("priority")
@ID
@click.argument("priority", type=click.IntRange(1, 99))
def set_priority(experiment_id: int, priority: int) -> None:
    """Set the priority, 1 (first) to 99 (last)."""
    _set(experiment_id, "priority", priority, resources={"priority": priority})


_COUNT = click.IntRange(0)


@set_attribute.command("gc-policy")
@ID
@click.option("--save-experiment-best", type=_COUNT, required=True, help="How many of the experiment's best stay.")
@click.option("--save-trial-best", type=_COUNT, required=True, help="How many of each trial's best stay.")
@click.option("--save-trial-latest", type=_COUNT, required=True, help="How many of each trial's latest stay.")
@YES
def set_gc_policy(experiment_id: int, yes: bool, **policy: int) -> None:
    """Set which checkpoints stay when the experiment has ended; if it has ended already, the others are deleted now."""
    from dethpc.cli.commands.garbage import show_unwanted
    from dethpc.client.nouns import experiments

    session = connect()
    if not yes:
        show_unwanted(session, experiment_id, policy)
        click.confirm("Files of checkpoints that go cannot be brought back. Set the policy?", abort=True)
    first, best, latest = (policy[name] for name in ("save_experiment_best", "save_trial_best", "save_trial_latest"))
    storage = {"saveExperimentBest": first, "saveTrialBest": best, "saveTrialLatest": latest}
    experiments.patch(session, experiment_id, checkpointStorage=storage)
    counts = ", ".join(f"{name} {count}" for name, count in policy.items())
    output.echo(f"Set the checkpoint policy of experiment {experiment_id} to {counts}")


@set_attribute.command("log-retention")
@ID
@days_of_logs
def set_log_retention(experiment_id: int, days: int, forever: bool) -> None:
    """Set for how long the logs of its trials are kept, whatever its configuration and single trials say."""
    from dethpc.client.nouns import experiments

    experiments.retain_logs(connect(), "experiments", experiment_id, days)
    output.echo(f"Keeping the logs of experiment {experiment_id} {kept_for(days)}")
