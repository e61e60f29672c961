"""Which checkpoints of an experiment its retention policy deletes, and how a policy is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sqlalchemy import Connection

from dethpc import storage
from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.facts import Checkpoint, Experiment
from dethpc.engine import events
from dethpc.engine.changes import UNSET, ExperimentChanges
from dethpc.engine.checkpoints import needed
from dethpc.engine.garbage import HAVE_FILES, Candidate, Policy, unwanted
from dethpc.errors import Refused
from dethpc.master.experiments.checkpoint_uses import kept_by_policy, needed_by_rendered
from dethpc.master.parts import Parts
from dethpc.state import queries

FIELDS = ("save_experiment_best", "save_trial_best", "save_trial_latest")
"""Of a ``checkpoint_storage`` section."""


class Policies:
    """Every method may be called from any thread, and raises NotFound, Refused. ``wake``: a policy is to be followed."""

    def __init__(self, parts: Parts, wake: Callable[[], None]) -> None:
        self._ledger = parts.ledger
        self._store = parts.store
        self._home = parts.home
        self._wake = wake

    def preview(self, experiment_id: int, policy: Policy | None = None) -> tuple[Experiment, list[Checkpoint]]:
        """What would go if the policy were that, by default its own, and the experiment had ended."""
        in_use = self._ledger.look(lambda state: set(needed(state))) | needed_by_rendered(self._home).keys()
        with self._store.read() as connection:
            row = queries.experiment(connection, experiment_id)
            uuids = chosen(connection, row, in_use | kept_by_policy(connection), policy)
            return row, queries.checkpoints_by_id(connection, uuids)

    def set(self, experiment_id: int, counts: dict[str, int]) -> None:
        """Change the policy, which is followed when the experiment has ended: at once where it has."""
        self._ledger.do_after(partial(self._changed, experiment_id, counts))
        self._wake()

    def follow(self, experiment_ids: Sequence[int]) -> None:
        """Follow the policies of these experiments now, those that have not ended when they have."""
        for experiment_id in experiment_ids:
            self._ledger.do_after(partial(self._changed, experiment_id, {}))
        self._wake()

    def _changed(self, experiment_id: int, counts: dict[str, int]) -> events.Event:
        with self._store.read() as connection:
            row = queries.experiment(connection, experiment_id)
        check_policy(row, counts)
        changed = ExperimentConfig.from_json(row.config).with_checkpoint_policy(counts)
        config = changed.to_json() if counts else UNSET
        changes = ExperimentChanges(config=config, collect=row.state.terminal or UNSET)
        return events.LoadExperiment(row, (), events.ChangeExperiment(experiment_id, changes, time.time()))


def check_policy(experiment: Experiment, counts: Mapping[str, int]) -> None:
    """That ``Policies.set`` takes them. Raises Refused."""
    wrong = next((f"{name} {n}" for name, n in counts.items() if not 0 <= n < 2**63), None)
    if wrong:
        raise Refused(f"{wrong} is invalid: it must be a whole number from 0 to {2**63 - 1}")
    if not experiment.state.keeps_files:
        raise Refused(f"experiment {experiment.id} is {experiment.state.value}, its files may be gone")


def chosen(connection: Connection, experiment: Experiment, in_use: set[str], policy: Policy | None = None) -> list[str]:
    """What goes by the policy, the experiment's own where none is given, but for what is ``in_use`` all the same: uuids, the oldest
    first. Nothing that training code put elsewhere."""
    section = ExperimentConfig.from_json(experiment.config).checkpoint_storage
    if section is None:
        return []
    configured = section.model_dump(mode="json")
    if policy is None:
        policy = Policy(*(configured[name] for name in FIELDS))
    candidates = [
        Candidate(row.uuid, row.trial_id, row.reported_at, row.value, row.whole)
        for row in queries.ranked(connection, experiment, HAVE_FILES)
        if not storage.elsewhere(row.storage, configured)
    ]
    return unwanted(policy._replace(smaller_is_better=experiment.smaller_is_better), candidates, in_use)
