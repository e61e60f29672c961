"""Trials wait until their image is in the cache, and one task pulls it for all: a real registry, real jobs on this machine."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from dethpc.cli.nouns.image import image
from dethpc.client.nouns import experiments, images, tasks
from dethpc.config.sections.image_cache import ImageCache
from dethpc.config.site import PoolConfig, SiteConfig
from dethpc.domain.facts import Task
from dethpc.domain.states import State, TaskKind
from dethpc.errors import NotFound, Refused
from dethpc.exec.images.cache import FOLDER
from dethpc.master.submitting.image_pulls import ORDER
from dethpc.master.watching import trouble
from dethpc.rundir.layout import RunDir
from dethpc.state import rows
from tests import folders
from tests.master.conftest import Served
from tests.registries import RealRegistry, needs_registry, noise, registry, tar
from tests.waiting import wait_until

pytestmark = needs_registry


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    with registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


@pytest.fixture
def site(tmp_path: Path) -> SiteConfig:
    pool = PoolConfig.model_validate({"container_runtime": "charliecloud"})
    kept = ImageCache(cache=str(tmp_path / "images"), auth_file=str(tmp_path / "auth.json"))
    return SiteConfig(cluster_name="testbed", pools={"default": pool}, images=kept)


@pytest.fixture
def working(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A master that submits, and starts on the node what would start inside: these images have no python3."""
    monkeypatch.setattr("dethpc.master.submitting.run_container.Inside.wrap", lambda *_: None)
    monkeypatch.setattr("dethpc.exec.images.cache.Cache.lacks_python", lambda *_: False)
    reconciler = served.daemon._reconciler
    reconciler.start()
    yield served
    reconciler.stop()


def create(served: Served, name: str, auth: Any = None, entrypoint: str = "true", **environment: Any) -> int:
    config = {
        "name": "inside",
        "entrypoint": entrypoint,
        "searcher": {"name": "single", "metric": "loss"},
        "resources": {"slots_per_trial": 1},
        "max_restarts": 3,
        "preemption_timeout": 1,
        "environment": {"image": name, **({"registry_auth": auth} if auth else {}), **environment},
    }
    made = experiments.create(served.session, yaml.safe_dump(config), [])
    return int(made["experiment"]["id"])


def state(served: Served, experiment: int) -> str:
    return str(served.session.get(f"/api/v1/experiments/{experiment}")["experiment"]["state"]).removeprefix("STATE_")


def trial_of(served: Served, experiment: int) -> dict[str, Any]:
    (found,) = served.session.get(f"/api/v1/experiments/{experiment}/trials")["trials"]
    one: dict[str, Any] = served.session.get(f"/api/v1/trials/{found['id']}")["trial"]
    return one


def pulls(served: Served) -> list[Task]:
    with served.daemon.store.read() as connection:
        found = rows.read(connection, Task, rows.table(Task).c.kind == TaskKind.IMAGE_PULL)
    return [task for task in found if task.config.get("image")]


def ended(served: Served, experiment: int, how: str) -> dict[str, Any]:
    wait_until(lambda: state(served, experiment) in ("COMPLETED", "ERROR", "CANCELED"))
    found = trial_of(served, experiment)
    assert state(served, experiment) == how, found
    return found


def test_five_experiments_wait_for_one_pull_and_then_go_on_with_its_digest(
    working: Served, source: RealRegistry, tmp_path: Path
) -> None:
    digest = source.push("team/train", "1", [tar({"f": noise(5)})])
    name = f"{source.host}/team/train:1"
    made = [create(working, name, source.auth()) for _ in range(5)]
    for experiment in made:
        found = ended(working, experiment, "COMPLETED")
        assert (found["image"], found["restarts"]) == (digest, 0)
    (task,) = pulls(working)
    assert task.state is State.COMPLETED and len(source.requests("GET", "/v2/team/train/blobs/")) == 2
    runs = folders.contents(working.daemon.installation.home.runs)
    log = "".join(content.decode() for path, content in runs if path.name.startswith("waiting"))
    assert f"waits for image {name}: its pull is queued" in log
    (there,) = images.images(working.session)["images"]
    assert (there["digest"], there["name"], Path(there["path"]).is_dir()) == (digest, name, True)

    # The password is where the configuration is, and nowhere else: not with the trials, nor in what the pull leaves.
    configurations = {"dethpc.db", "dethpc.db-wal", "changes.jsonl"}
    for file, content in folders.contents(tmp_path):
        assert source.password.encode() not in content or file.name in configurations, file
    with sqlite3.connect(working.daemon.installation.home.database) as database:
        assert source.password not in str(database.execute("select * from tasks where kind = 'IMAGE_PULL'").fetchall())


def test_a_command_waits_for_its_image_and_keeps_it_from_going(working: Served, source: RealRegistry) -> None:
    digest = source.push("tools", "1", [tar({"f": noise(3)})])
    image = {"image": f"{source.host}/tools:1", "registry_auth": source.auth()}
    going = tasks.launch(working.session, "commands", {"entrypoint": ["sleep", "98765"], "environment": image}, [])
    command = going["command"]["id"]

    def state_of(id: str) -> str:
        return str(tasks.get(working.session, "commands", id)["command"]["state"])

    wait_until(lambda: state_of(command) == "STATE_RUNNING")
    spec = json.loads(working.daemon.installation.home.run(f"{command}.1").spec.read_text())
    (pull,) = pulls(working)
    assert (pull.state, pull.config["auth_of"]) == (State.COMPLETED, command) and spec["kind"] == "command"
    assert working.session.get("/api/v1/images/unneeded")["images"] == []
    tasks.kill(working.session, "commands", command)
    wait_until(lambda: state_of(command) == "STATE_TERMINATED")
    assert [image["digest"] for image in working.session.get("/api/v1/images/unneeded")["images"]] == [digest]


def test_a_refusal_of_the_registry_ends_the_trial_at_once_and_another_experiment_asks_again(
    working: Served, source: RealRegistry
) -> None:
    source.push("late", "1", [tar({"f": "1"})])
    name = f"{source.host}/late:1"
    found = ended(working, create(working, name, {"username": "reader", "password": "wrong"}), "ERROR")
    assert "401 UNAUTHORIZED: authentication required" in found["reason"] and name in found["reason"]
    assert found["restarts"] == 0
    assert "wrong" not in found["reason"]
    ended(working, create(working, name, source.auth()), "COMPLETED")
    assert len(pulls(working)) == 2


def test_a_trial_that_goes_on_keeps_its_image_and_a_forced_pull_takes_the_new_one(
    working: Served, source: RealRegistry
) -> None:
    first = source.push("moving", "1", [tar({"f": "1"})])
    name = f"{source.host}/moving:1"
    held = create(working, name, source.auth(), entrypoint="sleep 1000")
    wait_until(lambda: trial_of(working, held)["image"] == first)
    second = source.push("moving", "1", [tar({"f": "2"})])
    assert ended(working, create(working, name, source.auth()), "COMPLETED")["image"] == first
    forced = create(working, name, source.auth(), force_pull_image=True)
    assert ended(working, forced, "COMPLETED")["image"] == second
    cache = working.daemon.services.images.cache
    assert cache.put_aside(FOLDER, first) is not None  # somebody cleared the cache
    experiments.act(working.session, held, "pause")
    wait_until(lambda: state(working, held) == "PAUSED")
    experiments.act(working.session, held, "activate")
    wait_until(lambda: cache.has(FOLDER, first))
    assert trial_of(working, held)["image"] == first
    experiments.act(working.session, held, "kill")
    ended(working, held, "CANCELED")


def test_an_image_without_python_ends_the_trial_before_it_is_queued(
    working: Served, source: RealRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    source.push("bare", "1", [tar({"usr/bin/python": "2"})])
    found = ended(working, create(working, f"{source.host}/bare:1", source.auth()), "ERROR")
    assert "has no python3; runs need Python 3.9" in found["reason"] and found["restarts"] == 0
    source.push("linked", "1", [tar({"a": "1"}), tar({"opt/conda/bin/python3": ("link", "python3.12")})])
    (tmp_path / "auth.json").write_text(json.dumps({"auths": {source.host: source.auth()}}))
    images = working.daemon.services.images
    images.order(f"{source.host}/linked:1", "default", "", "me", force=False)
    wait_until(lambda: not images.pulls())
    (entry,) = [each for each in images.cache.entries() if "linked" in each.name]
    assert not images.cache.lacks_python(FOLDER, entry.digest)


def test_a_pull_that_never_began_leaves_no_password(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    run_dir.make()
    (run_dir.path / ORDER).write_text("with a password")
    trouble.close(run_dir)
    assert run_dir.closed.exists() and not (run_dir.path / ORDER).exists()


def test_a_trial_that_waits_can_be_killed_and_says_what_it_waits_for(served: Served, source: RealRegistry) -> None:
    reconciler = served.daemon._reconciler
    name = f"{source.host}/nobody/pulls/it:1"
    experiment = create(served, name)
    reconciler._runs.take_in()
    reconciler._submitter.submit()
    (group,) = served.daemon.services.waits.of_experiment(experiment)
    assert group.waiting.cause == "image" and name in group.waiting.why and "queued" in group.waiting.why
    (task,) = images.images(served.session)["pulls"]
    assert task["image"] == name
    experiments.act(served.session, experiment, "kill")
    reconciler._runs.take_in()
    reconciler._submitter.submit()
    wait_until(lambda: state(served, experiment) == "CANCELED")


def test_a_pull_that_its_owner_ends_is_not_begun_again_and_the_next_goes_on_with_what_it_had(
    working: Served, source: RealRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dethpc.cli.nouns.image.connect", lambda: working.session)
    name = f"{source.host}/ended:1"
    digest = source.push("ended", "1", [tar({"f": "1"})])
    source.process.send_signal(signal.SIGSTOP)  # it takes connections, and answers none
    try:
        held = create(working, name, source.auth())
        wait_until(
            lambda: any(task.state is State.ACTIVE and task.runs for task in pulls(working) if name in task.name)
        )
        done = CliRunner().invoke(image, ["cancel", name])
        assert (done.exit_code, done.output) == (0, f"The pull of {name} ends\n")
        assert "killed by a user" in ended(working, held, "ERROR")["reason"]
    finally:
        source.process.send_signal(signal.SIGCONT)
    assert [task.state for task in pulls(working) if name in task.name] == [State.CANCELED]
    with pytest.raises(NotFound, match="no pull of .*ended:1 is under way"):
        images.cancel(working.session, name)
    again = create(working, name, source.auth())
    assert ended(working, again, "COMPLETED")["image"] == digest


def test_an_image_is_pulled_listed_and_pruned_by_hand(
    working: Served, source: RealRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("dethpc.cli.nouns.image.connect", lambda: working.session)
    kept = source.push("kept", "1", [tar({"f": "1"})])
    gone = source.push("gone", "1", [tar({"f": "2"})])
    (tmp_path / "auth.json").write_text(json.dumps({"auths": {source.host: source.auth()}}))

    def det(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(image, words)
        assert done.exit_code == code, (done.output, done.exception)
        return done.output

    for name in ("kept", "gone"):
        assert f"Pulled {source.host}/{name}:1" in det("pull", f"{source.host}/{name}:1", "-p", "default")
    assert "404" in str(CliRunner().invoke(image, ["pull", f"{source.host}/none:1", "-p", "default"]).output)
    held = create(working, f"{source.host}/kept:1", entrypoint="sleep 1000")
    wait_until(lambda: trial_of(working, held)["image"] == kept)
    listed = det("list")
    assert f"{source.host}/gone:1" in listed and "ready" in listed
    cache = working.daemon.services.images.cache
    cache.need(FOLDER, gone, "1 /home/of/another/master")
    assert json.loads(det("prune", "--json", "--dry-run"))["images"] == [], "a run of another user starts from it"
    cache.need_no_more(FOLDER, gone, "1 /home/of/another/master")
    (found,) = json.loads(det("prune", "--json", "--dry-run"))["images"]
    assert found["digest"] == gone and working.daemon.services.images.cache.has(FOLDER, gone)
    assert "1 image goes" in det("prune", "--yes")
    assert [mark.name.split(".")[1] for mark in (cache.root / "needed").iterdir()] == [kept.partition(":")[2]]
    assert not cache.has(FOLDER, gone) and cache.has(FOLDER, kept)
    wait_until(lambda: not list((cache.root / "work").glob("*.going")))
    experiments.act(working.session, held, "kill")
    with pytest.raises(Refused, match="is a path"):
        images.pull(working.session, "/x.sif")
