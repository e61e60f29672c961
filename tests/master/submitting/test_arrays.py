"""Runs that are alike go to the scheduler as one job array, and are jobs of their own for everything that comes after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dethpc.domain.facts import Run
from dethpc.domain.ports import LEFT_ITS_ARRAY, JobRecord, JobRequest, JobState
from dethpc.domain.states import RunState
from dethpc.engine import events
from dethpc.master.submitting import hand_over
from dethpc.master.submitting.arrays import Arrays
from dethpc.rundir.files import read_json
from dethpc.scheduler.slurm import arrays as scripts
from tests.master.conftest import T0
from tests.master.reconciler_world import CLUSTER, World
from tests.waiting import wait_until


class Alike(World):
    """A world whose runs ask for the same, and whose scheduler takes arrays of up to ten jobs."""

    def __init__(self, folder: Path, trials: int = 4, **pace: object) -> None:
        super().__init__(folder, trials, **pace)
        self.fake.largest_array = 10
        self.apart: set[str] = set()  # runs that ask for something else

    def _job(self, run: Run) -> JobRequest:
        return replace(super()._job(run), alike=f"#!/bin/bash{' ' if run.id in self.apart else ''}")

    def ids(self) -> list[str | None]:
        return [run.scheduler_job_id for run in self.runs()]

    def arrays(self) -> list[str]:
        return sorted(path.name for path in self.home.arrays.glob("*"))


@pytest.fixture
def alike(worlds: Callable[..., World], tmp_path: Path) -> Alike:  # worlds: so that a failure shows which were made
    world = Alike(tmp_path / "alike")
    world.fake.slots = 2
    return world


@pytest.fixture(autouse=True)
def _closed(alike: Alike) -> object:
    yield
    alike.close()


@pytest.mark.parametrize(
    "planted", ['{"runs": 7}', '{"runs": "1.1.1"}', '{"runs": {"1.1.1": 0}}', '{"runs": [1, null]}', "{}", "["]
)
def test_an_array_that_does_not_say_which_runs_it_has_disturbs_nobody(alike: Alike, planted: str) -> None:
    alike.cycle()
    folder = alike.home.arrays / "1.9.1x4"
    folder.mkdir()
    (folder / "array.json").write_text(planted)
    assert alike.arrays() == ["1.1.1x4", "1.9.1x4"]
    arrays = Arrays(alike.home, CLUSTER)
    name = alike.fake.jobs()["1_0"].name.replace("1.1.1x4", "1.9.1x4")
    assert "1.9.1x4" in name and arrays.run_of(JobRecord("9_0", name, JobState.PENDING)) == ""
    arrays.clean_up(alike.live, [])
    arrays.clean_up(alike.live, [])
    assert alike.arrays() == ["1.1.1x4"], "what belongs to nobody goes, and what is at work stays"


def test_runs_that_are_alike_are_one_request_and_jobs_of_their_own(alike: Alike) -> None:
    assert alike.requests()["submit_array"] == 1 and not alike.fake.requests["submit"]
    assert alike.ids() == ["1_0", "1_1", "1_2", "1_3"]
    (array,) = alike.arrays()
    held = read_json(alike.home.arrays / array / "array.json")
    assert held is not None and held["runs"] == [run.id for run in alike.runs()]
    for index, run in enumerate(alike.runs()):
        assert (alike.home.arrays / array / str(index)).samefile(alike.home.run(run.id).path)
    alike.cycle(2)
    assert alike.fake.count() == 4 and alike.run("1.1.1").state is not RunState.SUBMITTING


def test_what_is_not_alike_or_too_little_goes_alone_and_in_order(alike: Alike) -> None:
    alike.apart.add("1.2.1")
    alike.cycle()
    assert alike.ids() == ["1", "2", "3", "4"] and not alike.arrays(), "1, then another, then two: none is an array"


def test_an_array_is_no_larger_than_the_scheduler_takes(alike: Alike) -> None:
    alike.fake.largest_array = 3
    alike.cycle()
    assert alike.ids() == ["1_0", "1_1", "1_2", "2"]


def test_a_busy_machine_still_gathers_a_few(alike: Alike, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_over, "GATHER_FOR", 0.0)
    alike.cycle()
    assert alike.ids() == ["1_0", "1_1", "1_2", "1_3"]


def test_what_takes_long_to_gather_does_not_wait_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_over, "GATHER_FOR", 0.0)
    monkeypatch.setattr(hand_over, "GATHERS_AT_LEAST", 2)
    world = Alike(tmp_path / "slow", smallest_array=2)
    world.cycle()
    assert sorted(str(id) for id in world.ids()) == ["1_0", "1_1", "2_0", "2_1"]
    world.close()


def test_a_site_may_switch_arrays_off(tmp_path: Path) -> None:
    world = Alike(tmp_path / "off", smallest_array=0)
    world.cycle()
    assert world.ids() == ["1", "2", "3", "4"]
    world.close()


def test_a_refused_array_goes_one_by_one_and_the_log_says_why(alike: Alike, caplog: pytest.LogCaptureFixture) -> None:
    alike.fake.no_arrays = "Invalid job array specification"
    alike.cycle()
    assert alike.ids() == ["1", "2", "3", "4"]
    assert "were refused as one job array (Invalid job array specification) and go one by one" in caplog.text
    assert not alike.arrays()


def test_what_refuses_single_jobs_as_well_costs_two_requests(alike: Alike) -> None:
    alike.fake.defers = "MaxSubmitJobsPerUser"
    asked = alike.requests()
    assert (asked["submit_array"], asked["submit"]) == (1, 1)
    assert {run.state for run in alike.runs()} == {RunState.SUBMITTING}


def test_elements_of_a_lost_answer_are_adopted_by_a_later_master(alike: Alike) -> None:
    alike.fake.answers_lost = True
    alike.cycle()
    alike.fake.answers_lost = False
    alike.reconciler = alike.start()
    alike.cycle(2)
    assert sorted(str(id) for id in alike.ids()) == ["1_0", "1_1", "1_2", "1_3"] and alike.fake.count() == 4


def test_elements_that_accounting_alone_knows_are_found_by_the_arrays_name(alike: Alike) -> None:
    alike.fake.answers_lost = True
    alike.cycle()
    alike.fake.answers_lost = False
    alike.fake.forgotten = {f"1_{n}" for n in range(4)}
    alike.reconciler = alike.start()
    alike.cycle(2)
    assert sorted(str(id) for id in alike.ids()) == ["1_0", "1_1", "1_2", "1_3"] and alike.fake.count() == 4


def test_an_array_that_never_arrived_is_submitted_again_under_another_name(alike: Alike) -> None:
    alike.fake.never_arrives = True
    alike.cycle()
    alike.fake.never_arrives = False
    wait_until(lambda: alike.cycle() or all("_" in str(id) for id in alike.ids()))
    assert alike.fake.count() == 4
    assert len(alike.arrays()) == 2, "the first one may still come, and says whose its elements are"


def test_a_killed_run_costs_its_own_element_alone(alike: Alike) -> None:
    alike.cycle(2)
    alike.ledger.do(events.KillTrial(2, T0))
    alike.cycle(2)
    assert alike.fake.cancelled == ["1_1"] and alike.ended("1.2.1")
    assert [run.id for run in alike.runs()] == ["1.1.1", "1.3.1", "1.4.1"]


def test_an_element_that_left_its_array_was_cancelled_unless_it_has_begun(alike: Alike) -> None:
    alike.cycle()
    alike.node_starts("1.2.1")
    for job_id in ("1_1", "1_2"):
        alike.fake.end(job_id, JobState.CANCELLED, None)
        alike.fake.say(job_id, LEFT_ITS_ARRAY)
    alike.fake.settle = 3600.0
    alike.cycle(2)
    assert not alike.ended("1.2.1"), "it has begun: nothing is known yet of its end"
    assert alike.ended("1.3.1") and "cancelled outside dethpc" in str(alike.ends) + str(alike.trial(3))


def test_the_array_is_forgotten_once_all_its_runs_have_ended(alike: Alike) -> None:
    alike.cycle()
    for run in alike.runs()[:-1]:
        alike.fake.end(str(run.scheduler_job_id), JobState.FAILED, 1)
    alike.cycle(4)
    assert alike.arrays(), "one run is left"
    alike.ledger.do(events.Kill(1, T0))
    alike.cycle(6)
    assert not alike.runs() and not alike.arrays()


def test_what_a_user_submitted_as_an_array_is_nobodys(alike: Alike) -> None:
    alike.cycle()
    name = alike.job("1.1.1").name
    alike.fake.give_id_again("9_0", name.replace("1.1.1x4", "../../1.1.1"))
    alike.cycle(3)
    assert "9_0" not in alike.fake.cancelled


def test_scripts_are_alike_whatever_names_their_run() -> None:
    def script(run: str, *more: str) -> str:
        lines = [
            f"--job-name={run}_x",
            f'--comment="run {run} of dethpc"',
            f"--output=/r/{run}/slurm.log",
            "--nodes=1",
            *more,
        ]
        return (
            "#!/bin/bash\n"
            + "".join(f"#SBATCH {line}\n" for line in lines)
            + f"\nrun_dir=/r/{run}\n# DETHPC_ELEMENT\n#SBATCH --late\n"
        )

    one = scripts.alike(script("1.1.1"), "run 1.1.1 of dethpc")
    assert one == scripts.alike(script("1.2.1"), "run 1.2.1 of dethpc") == "#!/bin/bash\n#SBATCH --nodes=1"
    assert one != scripts.alike(script("1.2.1", "--time=5"), "run 1.2.1 of dethpc")
    for option in ("--dependency=singleton", "-d afterok:1", "--mail-type=END", "--dep singleton", "-Hd singleton"):
        assert scripts.alike(script("1.1.1", option), "") == ""
    text = scripts.script(one, "n", "two runs", Path("/h%/arrays/1.1.1x2"))
    assert text.splitlines()[:5] == [
        "#!/bin/bash",
        "#SBATCH --job-name=n",
        '#SBATCH --comment="two runs"',
        "#SBATCH --output=/h%%/arrays/1.1.1x2/%a/slurm.log",
        "#SBATCH --nodes=1",
    ]
