"""What is refused when an experiment is created, because it could never start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.site import PoolConfig, SiteConfig
from dethpc.domain.ports import PoolInfo
from dethpc.errors import ConfigError, Refused, SchedulerUnavailable, SubmitDeferred
from dethpc.master.submitting.admission import Admission
from dethpc.master.submitting.script import JobScript
from dethpc.master.watching.cluster_view import ClusterView
from tests.master.fake_scheduler import FakeScheduler


def config(pool: str = "default", slots: int = 1, **resources: Any) -> ExperimentConfig:
    resources = {"resource_pool": pool, "slots_per_trial": slots, **resources}
    searcher = {"name": "single", "metric": "loss"}
    return ExperimentConfig.from_json({"entrypoint": "train", "searcher": searcher, "resources": resources})


@pytest.fixture
def fake() -> FakeScheduler:
    return FakeScheduler(slots=4)


@pytest.fixture
def admission(fake: FakeScheduler) -> Admission:
    site = SiteConfig(pools={"default": PoolConfig(time_limit="60", cpus_per_slot=2)})
    return Admission(
        site, ClusterView(fake), JobScript(site, Path("/harness.zip"), use_srun=True), Path("/home/me/.dethpc")
    )


def test_what_fits_is_admitted_and_its_request_says_what_it_asks_for(admission: Admission) -> None:
    admission.check(config(slots=4))
    request = admission.request(config(slots=4))
    assert (request.nodes, request.slots_per_node, request.cpus_per_node, request.time_limit) == (1, 4, 8, 3600)


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (config(pool="nowhere"), "resources.resource_pool"),
        (config(slots=6), "resources.slots_per_trial"),
        (config(slots=8), "resources.slots_per_trial"),
    ],
)
def test_what_could_never_start_is_refused_with_the_field_to_change(
    admission: Admission, wanted: ExperimentConfig, field: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        admission.check(wanted)
    assert [problem.field for problem in refused.value.problems] == [field]


def test_a_refusal_names_the_beginning_of_a_long_name(admission: Admission) -> None:
    with pytest.raises(ConfigError) as refused:
        admission.check(config(pool="x" * 200_000))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("host", "container", "refused"),
    [
        ("/data", "/", True),
        ("/data", "/home/me", True),
        ("/data", "/home/me/../me/.dethpc/", True),
        ("/home", "/home", False),
        ("/data", "/home/me/.dethpc-data", False),
        ("/data", "/data", False),
        ("/data", "relative", False),
    ],
)
def test_a_mount_that_hides_what_the_run_lives_in_is_refused(
    fake: FakeScheduler, tmp_path: Path, host: str, container: str, refused: bool
) -> None:
    (tmp_path / "image/usr/bin").mkdir(parents=True)
    (tmp_path / "image/usr/bin/python3").touch()
    pool = PoolConfig.model_validate({"container": {"runtime": "charliecloud", "image": str(tmp_path / "image")}})
    site = SiteConfig(pools={"default": pool})
    script = JobScript(site, Path("/harness.zip"), use_srun=True)
    admission = Admission(site, ClusterView(fake), script, Path("/home/me/.dethpc"))
    wanted = config().to_json() | {"bind_mounts": [{"host_path": host, "container_path": container}]}
    if not refused:
        assert admission.container(ExperimentConfig.from_json(wanted)) is not None
        return
    with pytest.raises(ConfigError, match="the run itself lives"):
        admission.container(ExperimentConfig.from_json(wanted))


def test_a_pool_without_nodes_is_refused(
    admission: Admission, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeScheduler, "pools", lambda _: [PoolInfo("default", "gpu", 0, 0, 0)])
    site = SiteConfig()
    admission = Admission(
        site, ClusterView(fake), JobScript(site, Path("/harness.zip"), use_srun=True), Path("/home/me/.dethpc")
    )
    with pytest.raises(ConfigError, match="no nodes"):
        admission.check(config())


def test_no_job_is_written_without_the_sites_templates(fake: FakeScheduler, tmp_path: Path) -> None:
    """They may add what a site relies on, and the built-in ones would take their place unnoticed."""
    site = SiteConfig(templates=str(tmp_path / "sbatch"))
    with pytest.raises(SubmitDeferred, match="templates of the site configuration: .*/sbatch: No such file"):
        JobScript(site, Path("/harness.zip"), use_srun=True)
    (tmp_path / "sbatch").mkdir()
    script = JobScript(site, Path("/harness.zip"), use_srun=True)
    admission = Admission(site, ClusterView(fake), script, Path("/home/me/.dethpc"))
    admission.check(config())
    (tmp_path / "sbatch").rename(tmp_path / "not mounted any more")
    with pytest.raises(SubmitDeferred, match="templates"):
        admission.check(config())


def test_while_nothing_is_known_of_the_cluster_nothing_is_refused_for_good(
    admission: Admission, fake: FakeScheduler
) -> None:
    fake.silent = True
    with pytest.raises(SchedulerUnavailable):
        admission.check(config())


def test_many_checks_ask_the_scheduler_once(admission: Admission, fake: FakeScheduler) -> None:
    for slots in (1, 2, 4):
        admission.check(config(slots=slots))
    assert fake.requests == {"pools": 1, "nodes": 1}


def test_a_sites_limits_on_trials_and_slots_are_kept(fake: FakeScheduler) -> None:
    site = SiteConfig.model_validate({"limits": {"trials_per_experiment": 10, "slots_per_experiment": 2}})
    script = JobScript(site, Path("/harness.zip"), use_srun=True)
    admission = Admission(site, ClusterView(fake), script, Path("/home/me/.dethpc"))

    def searched(trials: int, **resources: Any) -> ExperimentConfig:
        requested = config(**resources).to_json()
        searcher = {"name": "random", "metric": "loss", "max_trials": trials}
        return ExperimentConfig.from_json({**requested, "searcher": searcher})

    admission.check(searched(10, slots=2))
    with pytest.raises(ConfigError) as refused:
        admission.check(searched(11, slots=3, max_slots=4))
    assert [problem.field for problem in refused.value.problems] == [
        "searcher",
        "resources.slots_per_trial",
        "resources.max_slots",
    ]
    length = {"max_length": {"batches": 100}, "budget": {"batches": 10_000}, "metric": "loss"}
    for by_budget in ({"name": "sync_halving", "num_rungs": 4}, {"name": "adaptive"}):
        requested = ExperimentConfig.from_json({**config().to_json(), "searcher": {**by_budget, **length}})
        with pytest.raises(ConfigError, match="searcher: the search has .* trials; the site allows"):
            admission.check(requested)
    limited, notices = admission.limited(searched(3))
    assert limited.resources.max_slots == 2 and "allows one experiment no more slots" in notices[0]
    assert admission.limited(searched(3, max_slots=1))[0].resources.max_slots == 1
    assert admission.limited(searched(1))[1] == [], "one trial of one slot is within it anyway"
    admission.allow_slots(2)
    for beyond in (3, None):
        with pytest.raises(Refused, match="2 at most"):
            admission.allow_slots(beyond)
