"""The published ``determined`` package, unmodified and in its own environment, against a real master."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import subprocess
import tarfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dethpc.domain.ports import PoolInfo
from dethpc.domain.states import RunState, State
from dethpc.master.http.nouns.cluster import ResourcePool
from tests.master.conftest import CONFIG, Published, Served, experiment, run_of, trained, trial, uuid_of
from tests.waiting import LONG_ENOUGH

YAML = """
name: digits
entrypoint: python3 train.py
searcher: {name: random, metric: loss, max_trials: 3, smaller_is_better: true}
hyperparameters: {lr: {type: double, minval: 0.001, maxval: 0.1}}
reproducibility: {experiment_seed: 42}
"""


@pytest.fixture
def project(published: Published) -> Path:
    folder = published.folder / "project"
    (folder / "model").mkdir(parents=True)
    (folder / "train.py").write_text("print('train')\n")
    (folder / "model" / "net.py").write_text("layers = 3\n")
    (folder / "config.yaml").write_text(YAML)
    return folder


def create(published: Published, project: Path, *options: str) -> int:
    said = published.det("experiment", "create", f"{project}/config.yaml", str(project), *options)
    return int(said.split()[-1])


def test_version_raises_no_complaint(published: Published) -> None:
    assert "0.38.1" in published.det("version")
    assert published.errors == ""


def test_the_token_that_the_master_leaves_is_a_login(published: Published) -> None:
    assert published.served.owner in published.det("user", "whoami")
    assert published.served.owner in published.det("user", "list")


def test_login_by_password_and_by_token(published: Published) -> None:
    owner, token = published.served.owner, published.served.token
    (published.config / "determined" / "auth.json").unlink()
    assert published.python(
        f"d = client.Determined(user={owner!r}, password={token!r})\nprint(json.dumps(d.whoami().username))"
    )
    published.python(
        f"d = client.Determined(user={owner!r}, password={token!r})\n"
        f"d.get_user_by_name({owner!r}).change_password('Correct-horse-1')\nprint(1)"
    )
    assert published.python(
        "from determined.common.api import authentication as a\n"
        f"master = {published.served.url!r}\n"
        "out = []\n"
        "for user, password in [('determined', ''), ('admin', ''), (%r, ''), (%r, 'wrong'), (%r, 'Correct-horse-1')]:\n"
        "    try:\n"
        "        s = a.login(master, user, password); bindings.get_GetMe(s); bindings.post_Logout(s)\n"
        "        try: bindings.get_GetMe(s); out.append('still in')\n"
        "        except api.errors.UnauthenticatedException: out.append('out')\n"
        "    except api.errors.UnauthenticatedException: out.append('refused')\n"
        "print(json.dumps(out))" % (owner, owner, owner)
    ) == ["refused", "refused", "refused", "refused", "out"]


def test_an_experiments_life_by_the_cli(published: Published, project: Path) -> None:
    id = create(published, project, "--paused")
    assert "PAUSED" in published.det("experiment", "list")
    published.det("experiment", "set", "name", str(id), "renamed")
    published.det("experiment", "set", "description", str(id), "what it is")
    published.det("experiment", "label", "add", str(id), "blue")
    published.det("experiment", "label", "add", str(id), "green")
    published.det("experiment", "label", "remove", str(id), "blue")
    published.det("experiment", "set", "priority", str(id), "7")
    published.det("experiment", "set", "max-slots", str(id), "2")
    published.det("experiment", "set", "max-slots", str(id), "none")
    described = json.loads(published.det("experiment", "describe", str(id), "--json"))[0]["experiment"]
    assert (described["name"], described["description"], described["labels"]) == ("renamed", "what it is", ["green"])
    published.det("experiment", "activate", str(id))
    assert json.loads(published.det("job", "list", "--json"))["jobs"][0]["priority"] == 7
    assert "QUEUED" in published.det("experiment", "list")
    assert "det_version" not in published.det("experiment", "config", str(id))
    published.det("experiment", "pause", str(id))
    published.det("experiment", "cancel", str(id))


def test_an_experiment_without_a_name_gets_one_and_takes_labels(published: Published, project: Path) -> None:
    (project / "config.yaml").write_text(YAML.replace("name: digits\n", ""))
    first, second = (create(published, project, "--paused") for _ in "ab")
    published.det("experiment", "label", "add", str(first), "blue")
    made = [json.loads(published.det("experiment", "describe", str(id), "--json"))[0] for id in (first, second)]
    names = [one["experiment"]["name"] for one in made]
    assert all(re.fullmatch(r"Experiment \([a-z]+-[a-z]+\)", name) for name in names) and len(set(names)) == 2
    assert [one["config"]["name"] for one in made] == names and made[0]["experiment"]["labels"] == ["blue"]
    published.served.put([experiment(3, name="")])
    published.det("experiment", "label", "add", "3", "green")  # made by an earlier release


def test_a_killed_experiment_is_waited_for_and_archived(published: Published, project: Path) -> None:
    id = create(published, project, "--paused", "--config", "name=short-lived")
    published.det("experiment", "kill", str(id))
    published.det("experiment", "wait", str(id), "--polling-interval", "1", code=1)
    published.det("experiment", "archive", str(id))
    assert "short-lived" not in published.det("experiment", "list")
    assert "short-lived" in published.det("experiment", "list", "--all")
    published.det("experiment", "unarchive", str(id))
    assert "short-lived" in published.det("experiment", "list")


def test_the_context_directory_comes_back_as_it_was(published: Published, project: Path) -> None:
    id = create(published, project, "--paused")
    published.det("experiment", "download-model-def", str(id))
    with tarfile.open(published.folder / f"experiment_{id}_model_def.tgz") as tar:
        assert {"train.py", "model", "model/net.py", "config.yaml"} == set(tar.getnames())
        assert tar.extractfile("model/net.py").read() == b"layers = 3\n"  # type: ignore[union-attr]


def test_a_config_with_mistakes_is_refused_with_all_of_them(published: Published, project: Path) -> None:
    (project / "config.yaml").write_text(
        YAML.replace("name: random", "name: randm").replace("type: double", "type: doubl")
    )
    published.det("experiment", "create", f"{project}/config.yaml", str(project), code=1)
    assert "randm" in published.errors and "doubl" in published.errors


def test_tables_of_a_finished_experiment(published: Published, served: Served) -> None:
    served.put([experiment(1, owner=served.owner), *(row for id in (1, 2, 3) for row in trained(trial(id)))])
    described = published.det("experiment", "describe", "1", "--metrics")
    assert "Training Metric: loss" in described and "Validation Metric: accuracy" in described
    assert published.det("experiment", "list-trials", "1").count("COMPLETED") == 3
    listed = published.det("experiment", "list-checkpoints", "1", "--best", "2")
    assert uuid_of(3, 2) in listed and uuid_of(2, 2) in listed and uuid_of(3, 4) not in listed and "1000.0B" in listed
    said = published.det("trial", "describe", "2", "--metrics")
    assert uuid_of(2, 4) in said and '"accuracy": 0.5' in said
    assert "Validation Metrics" in published.det("checkpoint", "describe", uuid_of(1, 4))
    published.det("experiment", "wait", "1")
    assert "digits 1" in published.det("experiment", "list")


def test_a_checkpoint_on_shared_fs_is_downloaded(published: Published, served: Served, tmp_path: Path) -> None:
    storage = {"type": "shared_fs", "host_path": str(tmp_path / "shared")}
    served.put([experiment(1, config={**CONFIG, "checkpoint_storage": storage}), *trained(trial(1))])
    for steps in (2, 4):
        folder = tmp_path / "shared" / uuid_of(1, steps)
        folder.mkdir(parents=True)
        (folder / "weights.pt").write_text("weights")
    published.det("checkpoint", "download", uuid_of(1, 2), "-o", "got")
    assert (published.folder / "got" / "weights.pt").read_text() == "weights"
    published.det("trial", "download", "1", "--best", "-o", "best")


def test_the_sdk_reads_all_of_it(published: Published, served: Served) -> None:
    served.put([experiment(1, owner=served.owner), *(row for id in (1, 2, 3) for row in trained(trial(id)))])
    got = published.python(
        "client.login()\n"
        "exp = client.get_experiment(1)\n"
        "trials = exp.list_trials(sort_by=client.TrialSortBy.BEST_VALIDATION_METRIC, order_by=client.OrderBy.ASC)\n"
        "best = exp.top_checkpoint()\n"
        "print(json.dumps({\n"
        "  'state': exp.wait().value, 'trials': [t.id for t in trials],\n"
        "  'best': best.uuid, 'metrics': best.training.validation_metrics['avgMetrics'],\n"
        "  'top': [c.uuid for c in exp.list_checkpoints(sort_by='accuracy', order_by=client.OrderBy.ASC, max_results=2)],\n"
        "  'distinct': [c.training.trial_id for c in exp.top_n_checkpoints(3)],\n"
        "  'latest': trials[0].select_checkpoint(latest=True).uuid,\n"
        "  'validation': [m.metrics['loss'] for m in trials[0].iter_metrics('validation')],\n"
        "  'training': [m.steps_completed for m in trials[0].iter_metrics('training')],\n"
        "  'summary': trials[0].summary_metrics['validation_metrics']['loss']['min'],\n"
        "  'of': trials[0].get_experiment().id,\n"
        "  'listed': [e.id for e in client.list_experiments(name='GITS', labels=[], states=[client.ExperimentState.COMPLETED])],\n"
        "  'pools': [p.name for p in client._determined._session and bindings.get_GetResourcePools(sess).resourcePools],\n"
        "}))\n"
    )
    assert got["state"] == "STATE_COMPLETED" and got["trials"] == [3, 2, 1] and got["of"] == 1
    assert got["best"] == uuid_of(3, 2) and got["metrics"]["loss"] == pytest.approx(1 / 3)
    assert got["top"] == [uuid_of(1, 4), uuid_of(1, 2)]
    assert got["distinct"] == [3, 2, 1]
    assert got["latest"] == uuid_of(3, 4)
    assert got["validation"] == [pytest.approx(1 / 3), pytest.approx(2 / 3)] and got["training"] == [1, 2, 3, 4]
    assert got["summary"] == pytest.approx(1 / 3)
    assert got["listed"] == [1] and got["pools"] == [pool.name for pool in served.daemon.services.cluster.pools()]


POST = """
def sent(name, **more):
    values = bindings.v1Metrics(avgMetrics={"seen": 3})
    return getattr(bindings, name)(metrics=values, stepsCompleted=4, trialId=1, trialRunId=1)

body = bindings.v1ReportTrialMetricsRequest(group="later", metrics=sent("v1TrialMetrics"))
bindings.post_ReportTrialMetrics(sess, body=body, metrics_trialId=1)
bindings.post_ReportTrialTrainingMetrics(sess, body=sent("v1TrialMetrics"), trainingMetrics_trialId=1)
bindings.post_ReportTrialValidationMetrics(sess, body=sent("v1TrialMetrics"), validationMetrics_trialId=1)
client.login()
found = client.get_trial(1).iter_metrics
print(json.dumps([[m.metrics for m in found(group)][-1] for group in ("later", "training", "validation")]))
"""


def test_metrics_are_posted_to_a_trial_of_the_scheduler(published: Published, served: Served) -> None:
    served.put([experiment(), *trained(trial(1))])
    assert published.python(POST) == [{"seen": 3}] * 3


def test_the_sdk_creates_an_experiment(published: Published, project: Path) -> None:
    got = published.python(
        "client.login()\n"
        f"exp = client.create_experiment(config={str(project / 'config.yaml')!r}, model_dir={str(project)!r})\n"
        "exp.pause(); exp.set_notes('a note'); exp.add_label('x'); exp.add_label('y'); exp.remove_label('x')\n"
        "first = exp.await_first_trial().id\n"
        "exp.reload()\n"
        "print(json.dumps([exp.notes, sorted(exp.labels), exp.state.value, first]))"
    )
    assert got == ["a note", ["y"], "STATE_PAUSED", 1]


def test_logs(published: Published, served: Served) -> None:
    served.put([experiment(1), *trained(trial(1))])
    log = served.daemon.installation.home.run("1.1.1").attempt(0)
    log.make()
    log.log(0).write_text(
        "2025-11-13T02:13:20.000Z\tINFO\t0\tstdout\thello\n2025-11-13T02:13:21.000Z\tERROR\t1\tstderr\tbad news\n"
    )
    every = published.det("trial", "logs", "1")
    assert "[rank=0] || INFO: hello\n" in every and "bad news" in every
    assert "hello" in published.det("experiment", "logs", "1", "-f")
    assert "hello" not in published.det("trial", "logs", "1", "--level", "WARNING")
    tail = published.det("trial", "logs", "1", "--tail", "1")
    assert "hello" not in tail and "bad news" in tail
    assert "hello" in published.det("trial", "logs", "1", "--head", "1", "--rank-id", "0")
    got = published.python("print(json.dumps([line.log for line in bindings.get_TaskLogs(sess, taskId='1.1')]))")
    assert got == ["hello", "bad news"]


def test_the_cluster(published: Published, served: Served) -> None:
    served.daemon.installation.home.log.write_text("2025-11-13 02:13:20,123 INFO dethpc: it lives\nTraceback:\n")
    assert "testbed" in published.det("master", "info")
    assert "it lives" in published.det("master", "logs")
    assert "Traceback" in published.det("master", "logs", "--tail", "1")
    assert "local" in published.det("master", "config")
    node = served.daemon.services.cluster.nodes()[0].name
    assert node in published.det("agent", "list")
    assert published.det("slot", "list").count("FREE") >= 4
    busy = trial(1, state=trial(1).state)
    served.put([experiment(1), busy, run_of(busy, state=RunState.RUNNING, nodes=[node], slots=2)])
    assert published.det("slot", "list").count("Trial 1") == 2
    assert "1.1.1.0" in published.det("task", "list")
    assert published.det("template", "list")
    assert "Uncategorized" in published.det("workspace", "list")
    assert "Uncategorized" in published.det("project", "list", "Uncategorized")


def test_what_scripts_ask_of_a_cluster(published: Published, served: Served) -> None:
    busy = trial(1, state=State.ACTIVE)
    node = served.daemon.services.cluster.nodes()[0].name
    served.put([experiment(1), busy, run_of(busy, state=RunState.RUNNING, nodes=[node], slots=2)])
    got = published.python(
        "config = bindings.get_GetMasterConfig(sess).config\n"
        "(pool,) = bindings.get_GetResourcePools(sess).resourcePools\n"
        "print(json.dumps({\n"
        "  'manager': config['resource_manager']['type'], 'switches': config['feature_switches'],\n"
        "  'pool': pool.schedulerType.value, 'agent': bindings.get_GetAgents(sess).agents[0].version,\n"
        "  'tasks': sess.get('tasks').json(), 'health': bindings.get_health(sess).to_json(),\n"
        "}))"
    )
    assert (got["manager"], got["switches"], got["pool"]) == ("agent", [], "SCHEDULER_TYPE_PRIORITY")
    assert got["agent"] == "0.38.1" and got["health"]["status"] == got["health"]["database"] == "up"
    (task,) = got["tasks"].values()
    assert got["tasks"].keys() == {"1.1.1.0"} == {task["allocation_id"]}
    assert (task["task_id"], task["slots_needed"], task["resource_pool"]) == ("1.1", 2, "default")
    (resources,) = task["resources"]
    assert resources["allocation_id"] == "1.1.1.0" and resources["agent_devices"] == {node: []}


def test_a_pool_of_slurm_says_so_and_how_its_queue_is_ordered() -> None:
    info = PoolInfo("gpu", "gpu", nodes=1, slots=8, slots_used=0)
    for kind, local in (("priority", "PRIORITY"), ("fair_share", "FAIR_SHARE"), ("fifo", "ROUND_ROBIN")):
        for scheduler, said in (("slurm", "SLURM"), ("local", local)):
            pool = ResourcePool.of(info, kind=kind, scheduler=scheduler, cluster="c", stats=None)
            assert (pool.scheduler_type, pool.queue_order) == (f"SCHEDULER_TYPE_{said}", kind)


TRAIN = """
import subprocess, sys
import determined as det

if len(sys.argv) == 1:
    workers = [subprocess.Popen([sys.executable, __file__, str(rank)]) for rank in range(2)]
    sys.exit(max(worker.wait() for worker in workers))

rank = int(sys.argv[1])
two = det.core.DistributedContext(
    rank=rank, size=2, local_rank=rank, local_size=2, cross_rank=0, cross_size=1, chief_ip="127.0.0.1"
)
with det.core.init(distributed=two) as core:
    if rank == 1:
        core.train.report_metrics("second_worker", steps_completed=2, metrics={"seen": 64})
        sys.exit(0)
    for step in range(1, 4):
        core.train.report_training_metrics(steps_completed=step, metrics={"loss": 1.0 / step})
    with core.checkpoint.store_path({"steps_completed": 3}) as (path, uuid):
        (path / "weights").write_text("w")
    core.train.report_validation_metrics(steps_completed=3, metrics={"loss": det.get_cluster_info().trial.hparams["lr"]})
    print("trained to the end")
"""


TWO_WORKERS = """
resources: {slots_per_trial: 2}
max_restarts: 0
"""


def test_a_search_from_create_to_download_with_nothing_of_ours_on_the_users_side(
    running: Published, tmp_path: Path
) -> None:
    assert running.served.url.startswith("https://")
    project = running.folder / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    (project / "config.yaml").write_text(YAML.replace("max_trials: 3", "max_trials: 2") + TWO_WORKERS)
    followed = running.det("experiment", "create", f"{project}/config.yaml", str(project), "-f")
    assert "trained to the end" in followed
    running.det("experiment", "wait", "1", "--polling-interval", "1")
    assert running.det("experiment", "list-trials", "1").count("COMPLETED") == 2
    best = running.python("client.login(); print(json.dumps(client.get_experiment(1).top_checkpoint().uuid))")
    running.det("checkpoint", "download", best, "-o", "best")
    assert (running.folder / "best" / "weights").read_text() == "w"
    said = "client.login(); found = client.get_trial(1).iter_metrics('second_worker')"
    assert running.python(f"{said}; print(json.dumps([[m.steps_completed, m.metrics] for m in found]))") == [
        [2, {"seen": 64}]
    ]
    assert running.det("slot", "list").count("FREE") == 8  # four slots, two columns
    file = running.env["DET_MASTER_CERT_FILE"]
    for trusted in ({"FILE": file, "NAME": "localhost"}, {"FILE": "noverify"}):
        running.env.update({f"DET_MASTER_CERT_{name}": value for name, value in trusted.items()})
        assert running.served.owner in running.det("user", "whoami")
    running.env.update(DET_MASTER_CERT_FILE=file, DET_MASTER_CERT_NAME="evil.example.org")
    running.det("user", "whoami", code=1)
    assert "evil.example.org" in running.errors
    running.env["DET_MASTER_CERT_NAME"] = "localhost"
    assert "in progress" in running.det("experiment", "delete", "--yes", "1")
    assert (
        running.python(f"""
import time
client.login()
until, seen = time.monotonic() + {LONG_ENOUGH}, set()
while time.monotonic() < until:
    try:
        seen.add(client.get_experiment(1).state.value)
    except api.errors.NotFoundException:
        break
    time.sleep(0.2)
print(json.dumps(sorted(seen - {{"STATE_DELETING"}})))
""")
        == []
    )
    running.det("checkpoint", "describe", best, code=1)


def test_a_commands_life_by_the_cli(published: Published) -> None:
    folder = published.folder / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("text\n")
    task_id = published.det("command", "run", "--detach", "-c", str(folder), "cat a.txt").split()[-1]
    assert task_id in published.det("command", "list") and "cat a.txt" in published.det("command", "list", "--csv")
    assert published.det("command", "list", "-q").split() == [task_id]
    assert json.loads(published.det("command", "describe", task_id[:8], "--json"))["state"] == "QUEUED"
    assert "entrypoint: cat a.txt" in published.det("command", "config", task_id)
    assert "to 7" in published.det("command", "set", "priority", task_id, "7")
    assert task_id in published.det("task", "list")
    (queued,) = json.loads(published.det("job", "list", "--json"))["jobs"]
    assert (queued["type"], queued["priority"]) == ("TYPE_COMMAND", 7)
    published.det("command", "kill", task_id)
    assert "TERMINAT" in published.det("command", "describe", task_id, "--csv")
    published.det("command", "logs", task_id)


def test_a_generic_tasks_life_by_the_cli(published: Published) -> None:
    config = published.folder / "task.yaml"
    config.write_text("entrypoint: sleep 1\nresources: {slots: 1}\n")
    task_id = published.det("task", "create", str(config)).split()[-1]
    published.det("task", "pause", task_id)
    read = "t = bindings.get_GetTask(sess, taskId=%r).task\nprint(json.dumps([t.taskState.value, t.taskType.value]))"
    state, kind = published.python(read % task_id)
    assert state in ("GENERIC_TASK_STATE_STOPPING_PAUSED", "GENERIC_TASK_STATE_PAUSED") and kind == "TASK_TYPE_GENERIC"
    published.det("task", "unpause", task_id)
    assert "sleep 1" in published.det("task", "config", task_id)
    fork = published.det("task", "fork", task_id).split()[-1]
    published.det("task", "kill", task_id)
    published.det("task", "kill", "--root", fork)
    assert "CANCELED" in published.python(read % fork)[0]


def test_a_shell_is_opened_through_the_tunnel_of_the_published_client(running: Published) -> None:
    task_id = running.det("shell", "start", "--detach").split()[-1]
    argv = [running.venv / "bin" / "det", "shell", "open", task_id, "--", "echo", "of $((40 + 2)) $DET_TASK_TYPE"]
    # Its ssh wants a terminal, and reads what is typed.
    opened = subprocess.run(
        argv, cwd=running.folder, env=running.env, input="", capture_output=True, text=True, timeout=LONG_ENOUGH
    )
    assert "of 42 SHELL" in opened.stdout, opened.stderr
    status, _ = anonymous(running, f"/proxy/{task_id}/")
    assert status == 401, "only a tunnel is there for who shows no token"
    running.det("shell", "kill", task_id)


def anonymous(running: Published, path: str) -> tuple[int, bytes]:
    """The answer to somebody without a token."""
    where = urlsplit(running.served.url)
    context = ssl.create_default_context(cafile=running.env["DET_MASTER_CERT_FILE"])
    connection = http.client.HTTPSConnection(where.hostname or "", where.port, timeout=LONG_ENOUGH, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
