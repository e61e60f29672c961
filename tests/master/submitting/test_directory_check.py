"""A run's directory, and whose it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dethpc.domain.states import RunState, State
from dethpc.engine import events
from dethpc.master.submitting.submit import Occupied, check_directory
from dethpc.rundir.claim import claim
from dethpc.rundir.files import write_json
from dethpc.rundir.layout import RunDir
from tests.master.conftest import T0, run_of, task_of, trial
from tests.master.reconciler_world import NEVER, World

TRIAL = trial(1)
TASK, RUN = task_of(TRIAL), run_of(TRIAL)
SPEC: dict[str, Any] = {
    "cluster_id": "c",
    "run": RUN.id,
    "queue_id": TASK.queue_id,
    "trial_id": 1,
    "trial_seed": TRIAL.seed,
    "hparams": TRIAL.hparams,
}


def checked(path: Path) -> None:
    check_directory(RunDir(path), "c", RUN, TASK, TRIAL)


def test_an_empty_place_and_the_runs_own_are_free(tmp_path: Path) -> None:
    checked(tmp_path)
    run_dir = RunDir(tmp_path)
    run_dir.make()
    run_dir.waiting(0).write_text("it waits\n")
    checked(tmp_path)
    for spec in (SPEC, {**SPEC, "queue_id": ""}, {name: SPEC[name] for name in SPEC if name != "queue_id"}):
        write_json(run_dir.spec, spec)
        claim(run_dir, "7")
        checked(tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        {"cluster_id": "d"},
        {"queue_id": "another"},
        {"run": "9.9.9"},
        {"trial_id": 2},
        {"hparams": {"lr": 9}},
        {"trial_seed": 5},
    ],
)
def test_another_runs_place_is_occupied(tmp_path: Path, other: dict[str, Any]) -> None:
    write_json(tmp_path / "spec.json", {**SPEC, **other})
    with pytest.raises(Occupied, match=r"holds files of another run .*move that directory away"):
        checked(tmp_path)


def test_results_that_do_not_say_whose_they_are_are_not_believed(tmp_path: Path) -> None:
    claim(tmp_path, "7")
    with pytest.raises(Occupied, match="does not say whose"):
        checked(tmp_path)


def test_a_trial_whose_place_is_occupied_fails_alone(world: World) -> None:
    foreign = world.home.run("1.1.1")
    foreign.make()
    write_json(foreign.spec, {**SPEC, "queue_id": "another"})
    claim(foreign, "4242")
    world.cycle(2)
    assert world.trial(1).state is State.ERROR and "holds files of another run" in world.trial(1).reason
    assert world.run("1.2.1").state is RunState.PENDING and "1.1.1" not in world.prepared


@pytest.mark.parametrize("damage", [(b'"trial_id"', b'"trial_ie"'), (b"1.1.1", b"1.1.5"), (b'"', b"#")])
def test_a_damaged_spec_does_not_end_the_trial_whose_run_it_is(world: World, damage: tuple[bytes, bytes]) -> None:
    world.ledger.do(events.Prepared("1.1.1", "digest", T0))
    world.fake.answers_lost, world.fake.settle = True, NEVER
    world.fake.unseen |= {"1", "2", "3"}
    world.cycle()
    world.fake.answers_lost = False
    assert world.run().state is RunState.SUBMITTING
    spec, job_id = world.home.run("1.1.1").spec, world.job().job_id
    spec.write_bytes(spec.read_bytes().replace(*damage))
    claim(world.home.run("1.1.1"), job_id)
    world.reconciler = world.start()
    world.cycle(2)
    assert world.trial(1).state is State.ACTIVE and world.run().scheduler_job_id == job_id
