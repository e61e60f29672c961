"""Experiments on a real Slurm of four nodes, with everything going wrong that goes wrong on clusters."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from dethpc.cli.master_job import job_name
from dethpc.deploy.slurm_dev import Cluster
from tests.cluster import outages
from tests.e2e.conftest import SLEEPS, User, make_home, make_user, sleepers, take_down
from tests.unix_user import UnixUser
from tests.waiting import LONG_ENOUGH, wait_until

TORCH = '''
"""Two processes on two nodes train one small network; its final weights are printed as a hash."""
import atexit, hashlib, sys, time
import torch, torch.distributed as dist
import determined as det

info = det.get_cluster_info()
dist.init_process_group("gloo")
atexit.register(dist.destroy_process_group)  # its threads can end an interpreter that is going down by SIGABRT
torch.manual_seed(info.trial.trial_seed)
torch.set_num_threads(1)
net = torch.nn.Linear(8, 1)
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
steps, pause = info.trial.hparams["steps"], info.trial.hparams["pause"]
with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core:
    start = 0
    if info.latest_checkpoint is not None:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            kept = torch.load(path / "state.pt")
        net.load_state_dict(kept["net"]); optimizer.load_state_dict(kept["optimizer"]); start = kept["step"]
    print(f"starting at step {start}", flush=True)
    for step in range(start, steps):
        generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
        x = torch.randn(16, 8, generator=generator)
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        time.sleep(pause)
        if dist.get_rank() == 0:
            core.train.report_training_metrics(steps_completed=step + 1, metrics={"loss": loss.item()})
        stop = core.preempt.should_preempt()
        while step + 1 == info.trial.hparams["hold"] and not stop and info.latest_checkpoint is None:
            time.sleep(0.05)
            stop = core.preempt.should_preempt()
        if stop or step + 1 == steps:
            if dist.get_rank() == 0:
                with core.checkpoint.store_path({"steps_completed": step + 1}) as (path, uuid):
                    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, path / "state.pt")
            if stop and step + 1 < steps:
                print(f"stopping at step {step + 1}", flush=True)
                sys.exit(0)
    if dist.get_rank() == 0:
        core.train.report_validation_metrics(steps_completed=steps, metrics={"validation_loss": loss.item()})
    weights = b"".join(p.detach().numpy().tobytes() for p in net.parameters())
    print(f"final state {hashlib.sha256(weights).hexdigest()}", flush=True)
'''


@pytest.fixture
def on_slurm(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    """A user of the shared private Slurm."""
    with user_of(slurm, tmp_path) as user:
        yield user


@contextmanager
def user_of(cluster: Cluster, tmp_path: Path, who: UnixUser | None = None, **site: Any) -> Iterator[User]:
    """``who``: the Unix user that it is, where that is not the one who runs the tests."""
    env = {k: v for k, v in cluster.env.items() if k in ("SLURM_CONF",)}
    user = make_user(tmp_path, DETHPC_SCHEDULER="slurm", **env)
    if who is not None:
        ours = [name for name in user.env if name.startswith("STARTED_BY_TESTS")]
        kept = {name: user.env[name] for name in ("DETHPC_HOME", "DETHPC_SCHEDULER", *env, *ours)}
        user = User(user.folder, user.home, {**who.env, **kept}, who.python, who.become)
    make_home(user)
    limits = {"fastest_poll": 0.5, "slowest_poll": 3}
    master = {
        "host": "127.0.0.1",
        "tls": "on",
    }  # as it is beyond loopback, where strangers of the network could reach it
    (user.home / "site.yaml").write_text(yaml.safe_dump({"limits": limits, "master": master, **site}))
    if who is not None:
        who.owns(tmp_path)
    try:
        yield user
    finally:
        take_down(user)
        subprocess.run(["scancel", "--me"], env=user.env, check=False, **user.become)


def slurm_command(user: User, *words: str) -> str:
    return subprocess.run(words, env=user.env, capture_output=True, text=True, check=True, **user.become).stdout


def jobs(user: User) -> list[str]:
    return slurm_command(user, "squeue", "--me", "--noheader", "--states=PENDING,RUNNING", "--format=%i").split()


def final_state(log: str) -> str:
    found = re.search(r"final state (\w+)", log)
    assert found, log
    return found[1]


def outcome(user: User, experiment: int) -> list[tuple[Any, ...]]:
    """What must be the same however often something was killed."""
    rows = []
    for trial in user.trials(experiment):
        training = [(m["totalBatches"], m["metrics"]["avg_metrics"]["loss"]) for m in _ours(user, trial, "training")]
        validation = [m["metrics"]["validation_metrics"] for m in _ours(user, trial, "validation")]
        rows.append((trial["hparams"], trial["state"], training, validation))
    return rows


def _ours(user: User, trial: dict[str, Any], group: str) -> list[dict[str, Any]]:
    return user.metrics(trial["id"], group)


SEARCH = {
    "searcher": {"name": "random", "metric": "validation_loss", "max_trials": 20, "max_concurrent_trials": 6},
    "hyperparameters": {"lr": {"type": "log", "minval": -3, "maxval": -1, "base": 10}, "steps": 12, "pause": 0.15},
}


def test_two_nodes_train_one_network_and_a_pause_changes_no_bit(on_slurm: User) -> None:
    user = on_slurm
    user.write("context/train.py", TORCH)
    shape: dict[str, Any] = {
        "entrypoint": "python3 -m determined.launch.torch_distributed python3 train.py",
        "resources": {"slots_per_trial": 2},
        "slurm": {"slots_per_node": 1},
        "environment": {"environment_variables": ["OMP_NUM_THREADS=1"]},
    }
    whole = user.create(hyperparameters={"steps": 40, "pause": 0.0, "hold": 0}, **shape)
    user.det("experiment", "wait", str(whole))
    hold = random.Random(time.time()).randint(3, 20)
    paused = user.create(hyperparameters={"steps": 40, "pause": 0.0, "hold": hold}, **shape)
    user.wait_steps(paused, hold)
    user.det("experiment", "pause", str(paused))
    user.wait_state(paused, "PAUSED")
    wait_until(lambda: not jobs(user))
    user.det("experiment", "activate", str(paused))
    user.det("experiment", "wait", str(paused))
    log = user.log(paused)
    stopped, restarted = re.findall(r"stopping at step (\d+)", log), re.findall(r"starting at step (\d+)", log)
    assert stopped
    assert set(restarted) == {"0", stopped[0]}
    assert final_state(log) == final_state(user.log(whole))
    (trial,) = user.trials(paused)
    assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == list(range(1, 41))
    assert {"0", "1"} <= set(re.findall(r"rank=(\d)", user.det("experiment", "logs", str(paused))))
    assert user.master()["url"].startswith("https://")


def test_a_job_leads_to_its_trial_and_back_and_says_what_it_used(on_slurm: User) -> None:
    user = on_slurm
    experiment = user.create(name="digits: a search", hyperparameters={"lr": 0.01, "steps": 2, "pause": 0.0})
    user.det("experiment", "wait", str(experiment))
    (trial,) = user.trials(experiment)
    (run,) = user.json("trial", "describe", str(trial["id"]))["runs"]
    (found,) = user.json("slurm", run["jobId"])["runs"]
    assert (found["run"], found["trialId"], found["experimentId"]) == (run, trial["id"], experiment)
    name = slurm_command(user, "scontrol", "show", "job", run["jobId"], "--oneliner").split("JobName=")[1].split()[0]
    assert name.startswith(f"{run['id']}_digits-a-search_")
    usage = run["usage"]
    assert usage["cpus"] >= 1 and usage["cpu"] > 0 and usage["cpuSeconds"] > 0.01 and usage["memoryBytes"] > 10 << 20


def test_a_master_killed_ten_times_changes_nothing(on_slurm: User) -> None:
    user = on_slurm
    undisturbed = user.create(**SEARCH)
    user.det("experiment", "wait", str(undisturbed), timeout=LONG_ENOUGH)
    disturbed = user.create(**SEARCH)
    rng, kills, certificates = random.Random(os.urandom(8)), 0, set()
    while kills < 10 or user.experiment(disturbed)["state"] == "STATE_ACTIVE":
        time.sleep(rng.uniform(0.0, 1.0))
        certificates.add(user.master()["certificate"])
        if kills < 10:
            user.kill_master()
            kills += 1
        if kills == 5:
            (user.home / "master.key").unlink(missing_ok=True)  # the next master makes another certificate
        user.det("experiment", "list")  # starts another when there is none
    user.wait_state(disturbed, "COMPLETED")
    assert len(certificates) == 2
    assert outcome(user, disturbed) == outcome(user, undisturbed)
    starts = [
        user.det("trial", "logs", str(trial["id"])).count("starting at step 0") for trial in user.trials(disturbed)
    ]
    assert starts == [1] * 20, "no trial is trained twice"


def test_a_lost_node_and_a_scancel_lose_nothing(slurm_private: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = slurm_private(nodes=4, gpus_per_node=2)
    with user_of(cluster, tmp_path) as user:
        search = {**SEARCH, "searcher": {**SEARCH["searcher"], "max_trials": 8}}  # type: ignore[dict-item]
        undisturbed = user.create(**search)
        user.det("experiment", "wait", str(undisturbed), timeout=LONG_ENOUGH)
        disturbed = user.create(**search)
        user.wait_steps(disturbed, 3)
        outages.kill_node(cluster, "n0")
        job = wait_until(lambda: jobs(user))[-1]
        slurm_command(user, "scancel", job)
        time.sleep(1)
        outages.start_node(cluster, "n0")

        def release() -> bool:
            """What its owner does: a scancelled trial waits for its owner."""
            if user.experiment(disturbed)["state"] not in ("STATE_COMPLETED", "STATE_ERROR"):
                user.det("experiment", "activate", str(disturbed), code=None)
            return bool(user.experiment(disturbed)["state"] == "STATE_COMPLETED")

        wait_until(release)
        assert outcome(user, disturbed) == outcome(user, undisturbed)


def test_a_script_submitted_by_hand_trains_without_a_master_and_is_taken_in_later(on_slurm: User) -> None:
    user = on_slurm
    user.config(hyperparameters={"lr": 0.1, "steps": 6})
    script = user.det("experiment", "render", "config.yaml", "context")
    user.det("master", "down")
    path = user.write("trial.sbatch", "")
    path.write_text(script)
    job = slurm_command(user, "sbatch", "--parsable", str(path)).strip()
    wait_until(lambda: job not in jobs(user))
    (run_dir,) = user.home.glob("runs/*")
    out = user.det("experiment", "import", str(run_dir))
    experiment = int(out.split()[-1])
    assert user.experiment(experiment)["state"] == "STATE_COMPLETED"
    (trial,) = user.trials(experiment)
    assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == list(range(1, 7))
    assert "final state" in user.log(experiment)
    user.det("experiment", "import", str(run_dir), code=1)


HOSTILE = 'it\'s "quoted" $(touch /tmp/pwned) `id` ünïcødé ; rm -rf / \\ 100% \n second line'


def test_hostile_text_reaches_the_trial_unharmed(on_slurm: User) -> None:
    user = on_slurm
    user.write(
        "context/show.py",
        """\
        import base64, json, os
        import determined as det
        info = det.get_cluster_info()
        for text in (os.environ["STRANGE"], info.trial.hparams["text"], json.loads(os.environ["DET_HPARAMS"])["text"]):
            print("got", base64.b64encode(text.encode()).decode(), flush=True)
        """,
    )
    experiment = user.create(
        name=HOSTILE,
        description=HOSTILE,
        entrypoint=["python3", "show.py"],
        hyperparameters={"text": HOSTILE},
        environment={"environment_variables": [f"STRANGE={HOSTILE}"]},
    )
    user.det("experiment", "wait", str(experiment))
    import base64

    got = re.findall(r"got (\S+)", user.log(experiment))
    assert [base64.b64decode(text).decode() for text in got] == [HOSTILE] * 3
    assert user.experiment(experiment)["name"] == HOSTILE
    assert not Path("/tmp/pwned").exists()


@pytest.mark.parametrize(
    ("site", "changes", "message"),
    [
        ({"pools": {"gone": {"partition": "gone", "slots_per_node": 4}}}, {}, "invalid partition|partition"),
        ({}, {"slurm": {"sbatch_args": ["--no-such-option"]}}, "no-such-option"),
    ],
)
def test_what_slurm_refuses_is_said_in_its_own_words(
    slurm: Cluster, tmp_path: Path, site: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with user_of(slurm, tmp_path, **site) as user:
        user.config(**changes)
        out = user.det("experiment", "create", "config.yaml", "context", code=None)
        if "Created" in out:
            experiment = int(out.split()[-1])
            user.wait_state(experiment, "ERROR")
            assert re.search(message, user.det("experiment", "describe", str(experiment)))
        else:
            assert re.search(message, user.errors)


def test_a_killed_trial_leaves_no_process_on_any_node(on_slurm: User) -> None:
    user = on_slurm
    user.write("context/train.py", SLEEPS)
    experiment = user.create(resources={"slots_per_trial": 2}, slurm={"slots_per_node": 1})

    wait_until(lambda: len(sleepers(user)) == 2)
    user.det("experiment", "kill", str(experiment))
    user.wait_state(experiment, "CANCELED")
    wait_until(lambda: not sleepers(user))
    wait_until(lambda: not jobs(user))


def test_a_master_runs_as_a_slurm_job(on_slurm: User) -> None:
    user = on_slurm
    user.det("master", "up", "--slurm")
    assert jobs(user)
    experiment = user.create(hyperparameters={"lr": 0.1, "steps": 3})
    user.det("experiment", "wait", str(experiment))
    user.det("master", "down")
    wait_until(lambda: not jobs(user))


def test_a_site_has_its_masters_run_as_jobs_alone(slurm: Cluster, tmp_path: Path) -> None:
    master = {"host": "127.0.0.1", "where": "slurm", "sbatch_args": ["--comment=of-the-site"]}
    with user_of(slurm, tmp_path, master=master) as user:
        user.det("master", "up", "--foreground", code=1)
        assert "master.where: slurm" in user.errors and not jobs(user)
        user.det("experiment", "list")  # what needs a master submits it
        (job,) = jobs(user)
        assert f"submitted the master as job {job} (master.where: slurm)" in user.errors
        assert "Comment=of-the-site" in slurm_command(user, "scontrol", "show", "job", job)
        user.det("experiment", "list")
        assert jobs(user) == [job] and "submitted" not in user.errors
        user.det("master", "down")
        wait_until(lambda: not jobs(user))
        slurm_command(user, "sbatch", f"--job-name={job_name(user.home)}", "--hold", "--wrap=true")
        (held,) = jobs(user)
        asking = subprocess.Popen(
            [sys.executable, "-m", "dethpc.cli", "master", "up"], env=user.env, stderr=subprocess.PIPE
        )
        try:
            assert asking.stderr is not None
            assert f"already submitted as job {held}" in asking.stderr.readline().decode()
        finally:
            asking.kill()
            asking.wait()
        assert jobs(user) == [held]


def test_a_requeued_run_goes_on_from_its_checkpoint(on_slurm: User) -> None:
    user = on_slurm
    experiment = user.create(hyperparameters={"lr": 0.1, "steps": 60, "hold": 12})
    user.wait_steps(experiment, 12)
    (job,) = jobs(user)
    slurm_command(user, "scontrol", "requeue", job)
    user.det("experiment", "wait", str(experiment))
    (trial,) = user.trials(experiment)
    assert trial["restarts"] == 0
    assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == list(range(1, 61))
    assert int(re.findall(r"starting at step (\d+)", user.log(experiment))[1]) >= 10


def test_two_masters_never_serve_one_home(on_slurm: User) -> None:
    user = on_slurm
    user.det("experiment", "list")
    done = subprocess.run(
        ["python3", "-m", "dethpc.master", "--home", str(user.home)],
        env=user.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "a master is already running" in done.stderr


def test_sigterm_ends_a_master_cleanly(on_slurm: User) -> None:
    user = on_slurm
    user.det("experiment", "list")
    os.kill(user.master()["pid"], signal.SIGTERM)
    wait_until(lambda: user.master()["pid"] == 0)


LIAR = """\
#!/bin/bash
# Hands the job on after a while and says at once that nobody answered, every second time.
count=$(cat {folder}/count 2>/dev/null || echo 0); echo $((count + 1)) >{folder}/count
if [ $((count % 2)) -eq 0 ]; then
    (sleep {delay}; {sbatch} "$@" </dev/null >/dev/null 2>&1) >/dev/null 2>&1 &
    echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
    exit 1
fi
exec {sbatch} "$@"
"""


@pytest.mark.parametrize(
    "delay", [pytest.param(0, marks=pytest.mark.everything), 1, pytest.param(7, marks=pytest.mark.everything)]
)
def test_an_sbatch_that_times_out_and_submits_all_the_same_trains_once(
    slurm_private: Callable[..., Cluster], tmp_path: Path, delay: int
) -> None:
    """The longest delay is beyond what the master waits for: two jobs come to be, and one of them finds the run claimed."""
    cluster = slurm_private(nodes=2, message_timeout=2)
    with user_of(cluster, tmp_path) as user:
        real = shutil.which("sbatch", path=user.env["PATH"])
        liar = tmp_path / "bin" / "sbatch"
        liar.parent.mkdir()
        liar.write_text(LIAR.format(folder=tmp_path, delay=delay, sbatch=real))
        liar.chmod(0o755)
        user.env["PATH"] = f"{liar.parent}:{user.env['PATH']}"
        experiment = user.create(hyperparameters={"lr": 0.1, "steps": 10, "pause": 0.5})
        user.det("experiment", "wait", str(experiment))
        wait_until(lambda: not jobs(user))
        (trial,) = user.trials(experiment)
        assert user.log(experiment).count("starting at step 0") == 1
        assert [m["totalBatches"] for m in user.metrics(trial["id"], "training")] == list(range(1, 11))


def test_a_full_disk_is_said_and_ends_nothing_that_can_go_on(on_slurm: User) -> None:
    user = on_slurm
    small = user.home / "runs"
    small.mkdir(exist_ok=True)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k,mode=700", "tmpfs", str(small)], check=False
    ).returncode:
        pytest.skip("needs root to mount a small file system")
    try:
        user.write(
            "context/train.py",
            """\
            import determined as det
            with det.core.init() as core:
                for step in range(2000):
                    core.train.report_training_metrics(steps_completed=step + 1, metrics={"loss": 1.0, "pad": "x" * 300})
                core.train.report_validation_metrics(steps_completed=2000, metrics={"validation_loss": 1.0})
            """,
        )
        experiment = user.create()
        wait_until(
            lambda: (
                "No space left" in user.log(experiment)
                or "No space left" in user.det("experiment", "describe", str(experiment))
            )
        )
        subprocess.run(["mount", "-o", "remount,size=100m", str(small)], check=True)
        user.wait_state(experiment, "COMPLETED", "ERROR")
        (trial,) = user.trials(experiment)
        steps = [m["totalBatches"] for m in user.metrics(trial["id"], "training")]
        assert steps == list(range(1, len(steps) + 1)), "what was taken in has no holes"
    finally:
        take_down(user)
        subprocess.run(["umount", "-l", str(small)], check=False)
