"""Whatever happens in whatever order: no checkpoint goes that somebody would start from."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dethpc.domain.facts import EVERYTHING, Checkpoint, Experiment, Run, Trial
from dethpc.domain.states import CheckpointState, RunState, State
from dethpc.engine import events
from dethpc.engine.changes import ExperimentChanges
from dethpc.engine.garbage import HAVE_FILES, Candidate, Policy, unwanted, without
from dethpc.errors import Refused
from tests.engine.world import FAILED, FINISHED, World, config
from tests.example_counts import examples

PBT = {
    "population_size": 2,
    "num_rounds": 3,
    "length_per_round": {"batches": 2},
    "replace_function": {"truncate_fraction": 0.5},
    "explore_function": {"resample_probability": 0.5, "perturb_factor": 0.2},
}
KINDS = [("single", {}), ("random", {"max_trials": 3, "max_concurrent_trials": 1}), ("pbt", PBT)]


class Histories:
    """One action after another on one engine; ``pick`` chooses among what there is."""

    def __init__(self) -> None:
        self.world, self.saved = World(), 0
        self.registered: set[str] = set()
        self.chosen: list[tuple[int, list[str]]] = []  # by policies, and not decided yet

    # --- what there is

    def checkpoints(self, *states: CheckpointState) -> list[Checkpoint]:
        return [row for row in self.world.rows(Checkpoint) if row.decided in (states or HAVE_FILES)]

    def experiments(self, ended: bool) -> list[Experiment]:
        return [row for row in self.world.rows(Experiment) if row.state.terminal is ended]

    def starting_points(self) -> Iterator[tuple[str, str]]:
        """Where somebody may start: the checkpoint, and who. Said of rows alone, without what the engine says of it."""
        experiments = {row.id: row for row in self.world.rows(Experiment)}
        for trial in self.world.rows(Trial):
            experiment = experiments[trial.experiment_id]
            copied = experiment.config["searcher"]["name"] == "pbt" and not experiment.state.terminal
            if not trial.state.terminal or copied:
                yield trial.latest_checkpoint or trial.source_checkpoint or "", f"trial {trial.id}"
        for experiment in self.experiments(ended=False):
            created = sum(trial.experiment_id == experiment.id for trial in self.world.rows(Trial))
            if created < {"single": 1}.get(experiment.config["searcher"]["name"], 3):
                yield experiment.config["searcher"].get("source_checkpoint_uuid") or "", f"experiment {experiment.id}"
        yield from ((uuid, "a model") for uuid in self.registered)

    # --- what happens

    def create(self, pick: int) -> None:
        if len(self.experiments(ended=False)) > 3:
            return
        name, searcher = KINDS[pick % len(KINDS)]
        sources = [None, *(row.uuid for row in self.checkpoints(CheckpointState.COMPLETED))]
        source = sources[pick // len(KINDS) % len(sources)] if name != "pbt" else None
        warm = {"source_checkpoint_uuid": source} if source else {}
        self.world.create(searcher={**config(name)["searcher"], **searcher, **warm})
        self.world.do(events.Schedule(self.world.now()))

    def train(self, pick: int) -> None:
        for run in self.run(pick):
            self.saved += 1
            steps = self.world.trial(run).steps_completed + 1
            self.world.report(
                run, "metrics", group="validation", steps_completed=steps, metrics={"loss": float(pick % 7)}
            )
            if run.id in self.world.state.runs:
                self.world.report(
                    run, "checkpoint", uuid=f"c{self.saved}", steps_completed=steps, resources={"weights": 1}
                )

    def end(self, pick: int) -> None:
        for run in self.run(pick):
            self.world.end(run, FAILED if pick % 3 == 0 else FINISHED)

    def run(self, pick: int) -> list[Run]:
        """One that has started."""
        live = self.world.live()
        if not live:
            return []
        run = live[pick % len(live)]
        if run.state is not RunState.RUNNING:
            self.world.start(run)
        return [run]

    def interfere(self, pick: int) -> None:
        found = self.experiments(ended=False)
        wishes = (events.Pause, events.Activate, events.Cancel, events.Kill)
        if found:
            wish = wishes[pick % len(wishes)]
            self.world.do(wish(found[pick // len(wishes) % len(found)].id, self.world.now()))

    def go_on(self, pick: int) -> None:
        found = self.experiments(ended=True)
        if found:
            experiment = found[pick % len(found)]
            gone = {row.uuid: "was deleted" for row in self.checkpoints(CheckpointState.DELETED)}
            cfg = self.world.state.experiments[experiment.id].config
            now = self.world.now()
            self.world.do(
                events.ContinueExperiment(experiment.id, cfg, self.world.snapshot_of(experiment.id), now, gone)
            )

    def delete(self, pick: int) -> None:
        found = self.checkpoints()
        if found:
            row = without(found[pick % len(found)], {}, [EVERYTHING])
            needed = dict.fromkeys(self.registered, "it is a model")
            self.world.do(events.ChangeCheckpoints([row], self.world.now(), needed))

    def set_policy(self, pick: int) -> None:
        found = self.world.rows(Experiment)
        if found:
            row = found[pick % len(found)]
            storage = {
                "type": "shared_fs",
                "host_path": "/s",
                "save_trial_best": pick % 2,
                "save_trial_latest": pick % 3,
            }
            changes = ExperimentChanges(
                config={**row.config, "checkpoint_storage": storage}, collect=row.state.terminal
            )
            self.world.do(events.ChangeExperiment(row.id, changes, self.world.now()))

    def choose(self, pick: int) -> None:
        """As a policy of that kind does, for every experiment that has ended. What is chosen is decided later."""
        for row in self.experiments(ended=True):
            if row.collect:
                mine = [c for c in self.checkpoints() if c.experiment_id == row.id]
                candidates = [Candidate(c.uuid, c.trial_id, c.reported_at, float(len(c.uuid))) for c in mine]
                self.chosen.append((row.id, unwanted(Policy(0, pick % 2, pick // 2 % 2), candidates, self.kept())))

    def collect(self, pick: int) -> None:
        if self.chosen:
            experiment_id, uuids = self.chosen.pop(pick % len(self.chosen))
            rows = [row for row in self.checkpoints() if row.uuid in uuids]
            self.world.do(events.CollectGarbage(experiment_id, rows, self.kept(), bool(pick % 2), self.world.now()))

    def kept(self) -> set[str]:
        ended = (row for row in self.world.rows(Trial) if row.state in (State.ERROR, State.CANCELED))
        return self.registered | {row.source_checkpoint for row in ended if not row.latest_checkpoint}

    def register(self, pick: int) -> None:
        found = self.checkpoints(CheckpointState.COMPLETED)
        if found and len(self.registered) < 3:
            self.registered.add(found[pick % len(found)].uuid)


ACTIONS = (
    "create train train train end end interfere go_on delete set_policy choose choose collect collect register".split()
)


@settings(
    max_examples=examples(40), deadline=None, phases=[Phase.explicit, Phase.generate]
)  # what fails is long, however much it is cut
@given(st.integers(0, 2**32))
@pytest.mark.slow
def test_nothing_goes_that_somebody_would_start_from(seed: int) -> None:
    histories, rng = Histories(), random.Random(seed)
    for action in ["create", "train", "create", "create", *rng.choices(ACTIONS, k=120)]:
        with contextlib.suppress(Refused):
            getattr(histories, action)(rng.randrange(1000))
        gone = {row.uuid for row in histories.checkpoints(CheckpointState.DELETED)}
        for uuid, who in histories.starting_points():
            assert uuid not in gone, f"after {action}, {uuid} is gone, and {who} would start from it"
