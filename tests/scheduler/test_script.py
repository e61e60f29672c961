"""The batch script: what is written into it arrives unharmed, and it behaves, on a real Slurm and in plain bash.

A small stand-in takes the place of ``dethpc.exec``: it notes what it got and does what the test asks.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.deploy.slurm_dev import Cluster
from dethpc.domain.ports import JobRecord, JobRequest, JobState
from dethpc.errors import ConfigError, SubmitRejected
from dethpc.exec.setup.environment import restored
from dethpc.scheduler.slurm import options, script
from dethpc.scheduler.slurm.commands import SlurmCommands
from dethpc.scheduler.slurm.script import Resources, ScriptInput, render, sh
from tests.waiting import LONG_ENOUGH, wait_until

NASTY = "a b 'c' \"d\" $(touch /tmp/pwned) `e` $HOME \\ ü é 日本 \t# ! ; & | < >\n#SBATCH --array=0-9\nend\n"

STAND_IN = """
import json, os, signal, sys, time
run = sys.argv[-1]
def claim():
    temp = f"{run}/claim.{os.getpid()}"
    json.dump({"job_id": os.environ["DETHPC_JOB_ID"]}, open(temp, "w"))
    try:
        os.link(temp, f"{run}/claim")
    except FileExistsError:
        if json.load(open(f"{run}/claim"))["job_id"] != os.environ["DETHPC_JOB_ID"]:
            return False
    finally:
        os.unlink(temp)
    return True
if sys.argv[1] == "claim":
    sys.exit(0 if claim() else 3)
if not claim():
    sys.exit(0)
attempt = f"{run}/attempts/{os.environ['DETHPC_ATTEMPT']}"
os.makedirs(attempt, exist_ok=True)
rank = os.environ.get("DETHPC_NODE_RANK") or os.environ["SLURM_NODEID"]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
seen = {"argv": sys.argv[1:], "env": dict(os.environ), "cpus": len(os.sched_getaffinity(0)), "umask": os.umask(0o77)}
json.dump(seen, open(f"{attempt}/seen-{rank}.tmp", "w"))
os.rename(f"{attempt}/seen-{rank}.tmp", f"{attempt}/seen-{rank}.json")
print("attempt", os.environ["DETHPC_ATTEMPT"], flush=True)
behaviour = json.load(open(f"{run}/behaviour.json"))
if behaviour["stops"] and os.environ["DETHPC_ATTEMPT"] == "0":
    while not os.path.exists(f"{attempt}/stop.json"):
        time.sleep(0.02)
    reason = json.load(open(f"{attempt}/stop.json"))["reason"]
    json.dump({"finished": False, "acked": True, "stop_reason": reason}, open(f"{attempt}/end.json", "w"))
sys.exit(behaviour["exit"])
"""


@pytest.fixture
def harness(tmp_path: Path) -> Path:
    package = tmp_path / "harness" / "dethpc" / "exec"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(STAND_IN)
    return tmp_path / "harness"


class Runs:
    """Renders scripts, submits them, and reads what the stand-in saw."""

    def __init__(self, cluster: Cluster, folder: Path, harness: Path) -> None:
        self.folder, self.harness = folder, harness
        self.scheduler = SlurmCommands(environment={**os.environ, **cluster.env})
        self.submitted: list[str] = []

    def make(self, name: str = "run", *, stops: bool = False, code: int = 0, **options: Any) -> JobRequest:
        run_dir = self.folder / name
        run_dir.mkdir()
        (run_dir / "behaviour.json").write_text(json.dumps({"stops": stops, "exit": code}))
        options.setdefault("resources", Resources(gres="gpu:2", cpus_per_task=2))
        text = render(ScriptInput("det-abc-1.2.1", run_dir, str(self.harness), **options))
        path = run_dir / "job.sbatch"
        path.write_text(text)
        env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
        return JobRequest("1.2.1", "det-abc-1.2.1", path, run_dir, 2, env)

    def submit(self, job: JobRequest) -> str:
        self.submitted.append(self.scheduler.submit(job))
        return self.submitted[-1]

    def ended(self, job_id: str) -> JobRecord:
        return wait_until(lambda: not (r := self.scheduler.jobs()[job_id]).state.live and r)

    def state(self, job_id: str) -> JobState:
        return self.scheduler.jobs()[job_id].state


@pytest.fixture
def runs(slurm: Cluster, tmp_path: Path, harness: Path) -> Any:
    runs = Runs(slurm, tmp_path, harness)
    yield runs
    runs.scheduler.cancel(runs.submitted)
    wait_until(lambda: not any(runs.state(job_id).live for job_id in runs.submitted))


def of_batch(environment: dict[str, str]) -> dict[str, str]:
    """Slurm's variables as the batch script had them, which dethpc.exec restores for user code."""
    return restored({"DETHPC_SLURM": environment["DETHPC_SLURM"]}, task=False)


def seen(job: JobRequest, attempt: int = 0, rank: int = 0) -> dict[str, Any]:
    path = job.run_dir / "attempts" / str(attempt) / f"seen-{rank}.json"
    wait_until(path.exists)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


# --- on a real Slurm -------------------------------------------------------------------------------------------------


def test_values_reach_the_task_unharmed(runs: Runs) -> None:
    job = runs.make("a 'run' %j $(x) é", env={"NASTY": NASTY, "EMPTY": ""}, sbatch_args=["--comment='it is \"so\"'"])
    record = runs.ended(runs.submit(job))
    assert (record.state, record.exit_code) == (JobState.COMPLETED, 0), (job.run_dir / "slurm.log").read_text()
    got = seen(job)
    assert got["argv"] == [str(job.run_dir)]
    assert (got["env"]["NASTY"], got["env"]["EMPTY"]) == (NASTY, "")
    assert (job.run_dir / "slurm.log").read_text() == "attempt 0\n"
    assert not Path("/tmp/pwned").exists()
    assert record.name == "det-abc-1.2.1"


def test_the_task_has_its_nodes_share_and_knows_its_place(runs: Runs) -> None:
    job = runs.make(resources=Resources(nodes=2, gres="gpu:4", cpus_per_task=3, time=3600))
    job_id = runs.submit(job)
    record = runs.ended(job_id)
    assert record.state is JobState.COMPLETED, (job.run_dir / "slurm.log").read_text()
    for rank in (0, 1):
        environment = seen(job, rank=rank)["env"]
        assert environment["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
        assert of_batch(environment)["SLURM_CPUS_PER_TASK"] == "3"
        requests = {name for name in of_batch(environment) if name.startswith(("SLURM_NTASKS", "SLURM_OPEN_MODE"))}
        assert not requests, "one process per node, of which a batch script is told nothing"
        assert environment["DETHPC_NODES"] == ",".join(record.nodes)
        assert environment["SLURMD_NODENAME"] == record.nodes[rank]
        assert environment["DETHPC_ADDRESSES"] == "127.0.0.1,127.0.0.1"
        assert (environment["DETHPC_JOB_ID"], environment["DETHPC_ATTEMPT"]) == (job_id, "0")
        assert record.started_at is not None
        assert abs(int(environment["DETHPC_DEADLINE"]) - record.started_at - 3600) < 5
    assert seen(job)["umask"] == 0o77


def test_an_exit_code_is_the_jobs(runs: Runs) -> None:
    assert runs.ended(runs.submit(runs.make(code=7))).exit_code == 7


def test_a_second_job_for_the_same_run_ends_at_once(runs: Runs) -> None:
    job = runs.make(stops=True)
    first = runs.submit(job)
    seen(job)
    (job.run_dir / "attempts/0/seen-0.json").unlink()
    second = runs.submit(job)
    assert runs.ended(second).exit_code == 0
    assert not (job.run_dir / "attempts/0/seen-0.json").exists()
    assert runs.state(first) is JobState.RUNNING


def test_a_closed_run_does_not_start(runs: Runs) -> None:
    job = runs.make()
    (job.run_dir / "closed").write_text("{}")
    assert runs.ended(runs.submit(job)).exit_code == 0
    assert not (job.run_dir / "claim").exists()


def test_a_python_that_does_not_exist_fails_the_job(runs: Runs) -> None:
    job = runs.make(python="/no such/python3")
    assert runs.ended(runs.submit(job)).exit_code == 127
    assert "/no such/python3" in (job.run_dir / "slurm.log").read_text()


def test_a_cancelled_job_stops_cleanly_if_it_is_quick(runs: Runs) -> None:
    job = runs.make(stops=True)
    job_id = runs.submit(job)
    seen(job)
    runs.scheduler.cancel([job_id])
    assert runs.ended(job_id).state is JobState.CANCELLED
    assert json.loads((job.run_dir / "attempts/0/stop.json").read_text())["reason"] == "preempted"
    assert (job.run_dir / "attempts/0/end.json").exists()


def test_a_requeued_job_keeps_its_log_and_its_claim_and_has_an_attempt_of_its_own(runs: Runs) -> None:
    job = runs.make(stops=True)
    job_id = runs.submit(job)
    seen(job)
    runs.scheduler.requeue(job_id)
    assert seen(job, attempt=1)["env"]["DETHPC_JOB_ID"] == job_id
    assert runs.ended(job_id).state is JobState.COMPLETED
    log = (job.run_dir / "slurm.log").read_text()
    assert log.index("attempt 0\n") < log.index("attempt 1\n")


def test_a_time_limit_lowered_by_hand_stops_the_trial_and_a_run_without_a_master_requeues_itself(
    runs: Runs, slurm: Cluster
) -> None:
    job = runs.make(stops=True, self_requeue=True, resources=Resources(time=3600))
    job_id = runs.submit(job)
    first = seen(job)["env"]
    assert int(first["DETHPC_DEADLINE"]) - int(first["DETHPC_STOP_AT"]) == 60
    slurm.run("scontrol", "update", f"jobid={job_id}", "timelimit=1")
    assert seen(job, attempt=1)["env"]["DETHPC_JOB_ID"] == job_id
    stop = json.loads((job.run_dir / "attempts/0/stop.json").read_text())
    assert (stop["reason"], stop["deadline"]) == ("time_limit", None)
    record = runs.ended(job_id)
    assert (record.state, record.restarts) == (JobState.COMPLETED, 1)


def test_a_users_option_wins_over_the_pools(runs: Runs) -> None:
    job = runs.make(sbatch_args=["-c 1 --partition=high"], resources=Resources(cpus_per_task=2, partition="main"))
    assert runs.ended(runs.submit(job)).state is JobState.COMPLETED
    environment = of_batch(seen(job)["env"])
    assert (environment["SLURM_CPUS_PER_TASK"], environment["SLURM_JOB_PARTITION"]) == ("1", "high")


def test_an_unknown_option_is_refused_by_slurm(runs: Runs) -> None:
    with pytest.raises(SubmitRejected, match="no-such-option"):
        runs.scheduler.submit(runs.make(sbatch_args=["--no-such-option"]))


# --- in plain bash ---------------------------------------------------------------------------------------------------


@pytest.fixture
def local(tmp_path: Path, harness: Path) -> Callable[..., tuple[Path, list[str], dict[str, str]]]:
    def make(**options: Any) -> tuple[Path, list[str], dict[str, str]]:
        run_dir = tmp_path / "run"
        run_dir.mkdir()
        (run_dir / "behaviour.json").write_text(json.dumps({"stops": options.pop("stops", False), "exit": 5}))
        path = run_dir / "job.sbatch"
        path.write_text(render(ScriptInput("name", run_dir, str(harness), use_srun=False, **options)))
        env = {"PATH": os.environ["PATH"], "DETHPC_JOB_ID": "local-1", "DETHPC_RESTART_COUNT": "0"}
        return run_dir, ["bash", str(path)], env

    return make


def test_the_script_runs_without_slurm(local: Any) -> None:
    run_dir, argv, env = local(env={"NASTY": NASTY}, prologue=["export FROM_PROLOGUE=yes"])
    assert subprocess.run(argv, env=env, timeout=LONG_ENOUGH).returncode == 5
    got = json.loads((run_dir / "attempts/0/seen-0.json").read_text())["env"]
    assert (got["NASTY"], got["FROM_PROLOGUE"], got["DETHPC_ADDRESSES"]) == (NASTY, "yes", "127.0.0.1")
    assert not [name for name in got if name.startswith("SLURM")]


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGTERM, "preempted"), (signal.SIGUSR1, "time_limit")])
def test_signals_to_the_shell_become_a_stop_file_and_the_shell_outlives_its_child(
    local: Any, number: signal.Signals, reason: str
) -> None:
    run_dir, argv, env = local(stops=True)
    with subprocess.Popen(argv, env=env) as process:
        wait_until((run_dir / "attempts/0/seen-0.json").exists)
        process.send_signal(number)
        process.send_signal(number)
        assert process.wait(LONG_ENOUGH) == 5
    assert json.loads((run_dir / "attempts/0/stop.json").read_text())["reason"] == reason
    assert not list((run_dir / "attempts/0").glob(".stop*"))


def test_a_job_on_this_machine_leaves_the_claim_to_what_it_starts(local: Any) -> None:
    run_dir, argv, env = local()
    (run_dir / "claim").write_text(json.dumps({"job_id": "local-2"}) + "\n")
    assert subprocess.run(argv, env=env, timeout=LONG_ENOUGH).returncode == 0
    assert not (run_dir / "attempts/0/seen-0.json").exists()
    assert "dethpc.exec claim" not in Path(argv[1]).read_text()


def test_a_job_whose_run_another_has_asks_nobody_to_stop(local: Any) -> None:
    run_dir, argv, env = local(python="./waits")
    (run_dir / "waits").write_text(f"#!/bin/sh\ntouch {run_dir}/waiting\nexec sleep 3600\n")
    (run_dir / "waits").chmod(0o755)
    (run_dir / "claim").write_text(json.dumps({"job_id": "local-2"}) + "\n")
    (run_dir / "attempts/0").mkdir(parents=True)
    with subprocess.Popen(argv, env=env) as process:
        wait_until((run_dir / "waiting").exists)
        process.send_signal(signal.SIGUSR1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG_ENOUGH) == 128 + signal.SIGTERM
    assert not (run_dir / "attempts/0/stop.json").exists()


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("pages", [0, 1, 2])
def test_a_stop_file_on_a_disk_without_room_is_whole_or_absent(
    local: Any, tmp_path: Path, pages: int, links: bool
) -> None:
    """On one that has links, and on one that has none."""
    run_dir, argv, env = local(python="./waits")
    (run_dir / "waits").write_text(
        f"#!/bin/sh\ntouch {run_dir}/waiting\nwhile [ ! -e {run_dir}/go ]; do sleep 0.05; done\n"
    )
    (run_dir / "waits").chmod(0o755)
    (run_dir / "claim").write_text(json.dumps({"job_id": "local-1"}) + "\n")
    if not links:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/ln").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "bin/ln").chmod(0o755)
        env["PATH"] = f"{tmp_path}/bin:{env['PATH']}"
    attempt, page = run_dir / "attempts/0", resource.getpagesize()
    attempt.mkdir(parents=True)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={3 * page}", "tmpfs", str(attempt)], check=False
    ).returncode:
        pytest.skip("needs root to mount a small file system")
    try:
        (attempt / "rest").write_bytes(bytes((3 - pages) * page))
        with subprocess.Popen(argv, env=env) as process:
            wait_until((run_dir / "waiting").exists)
            process.send_signal(signal.SIGTERM)
            (run_dir / "go").touch()
            process.wait(LONG_ENOUGH)
        assert {path.name for path in attempt.iterdir()} == ({"rest", "stop.json"} if pages else {"rest"})
        assert not pages or json.loads((attempt / "stop.json").read_text())["reason"] == "preempted"
    finally:
        subprocess.run(["umount", "-l", str(attempt)], check=False)


def stop_at(local: Any, *, left: int, checkpoint: float = 0) -> tuple[int, float]:
    """How long before the end of a job that has so many seconds left the trial is told to stop; how long the script took."""
    run_dir, argv, env = local(resources=Resources(checkpoint=checkpoint))
    began = time.time()
    deadline = int(began) + left
    assert subprocess.run(argv, env={**env, "DETHPC_DEADLINE": str(deadline)}, timeout=LONG_ENOUGH).returncode == 5
    lead = deadline - int(json.loads((run_dir / "attempts/0/seen-0.json").read_text())["env"]["DETHPC_STOP_AT"])
    return lead, time.time() - began


@pytest.mark.parametrize(
    ("left", "checkpoint", "lead"),
    [
        (36000, 0, 60),  # a minute, while nothing was measured
        (36000, 299.2, 360),  # and the cost of a checkpoint
        (60, 0, 15),  # most of a short time is for training
        (60, 20, 30),
        (600, 500, 300),  # half of it at least
    ],
)
def test_the_trial_is_told_early_enough_for_its_checkpoint_and_still_trains(
    local: Any, left: int, checkpoint: float, lead: int
) -> None:
    found, took = stop_at(local, left=left, checkpoint=checkpoint)
    assert lead - 1 - took / 2 <= found <= lead + 1  # a second less that is left costs half a second at most


def test_a_warning_that_comes_too_early_is_not_heeded(local: Any) -> None:
    """Slurm warns up to a minute early, of a short limit at once; dethpc.exec looks at the clock itself."""
    run_dir, argv, env = local(stops=True)
    with subprocess.Popen(argv, env={**env, "DETHPC_DEADLINE": str(int(time.time()) + 75)}) as process:
        wait_until((run_dir / "attempts/0/seen-0.json").exists)
        process.send_signal(signal.SIGUSR1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG_ENOUGH) == 5
    assert json.loads((run_dir / "attempts/0/stop.json").read_text())["reason"] == "preempted"


def test_a_job_may_be_content_with_less_time(tmp_path: Path) -> None:
    text = render(ScriptInput("n", tmp_path, "h", resources=Resources(time=7200, time_min=1800, checkpoint=12.5)))
    assert "#SBATCH --time=120\n#SBATCH --time-min=30\n#SBATCH --signal=B:USR1@73\n" in text


# --- text ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=20))
def test_sh_makes_one_word_of_any_text(texts: list[str]) -> None:
    words = " ".join(map(sh, texts))
    assert "\n" not in words
    out = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {words}"], capture_output=True, env={"LC_ALL": "C.UTF-8"}, timeout=LONG_ENOUGH
    )
    assert out.stdout.decode().split("\0")[:-1] == texts


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("--array=1-3", "array"),
        ("--arr=1-3", "array"),
        ("-a1-3", "array"),
        ("-Ha 1-3", "array"),
        ("#SBATCH --wrap=ls", "wrap"),
        ("--time=5 -M other", "clusters"),
        ("-W", "wait"),
        ("--test", "test-only"),
    ],
)
def test_options_that_make_no_sense_for_one_trial_are_refused_by_name(line: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--{name}\\b.* is not possible here: {options.REFUSED[name]}"):
        render(ScriptInput("n", tmp_path, "h", sbatch_args=[line]))


def directives(tmp_path: Path, *lines: str, **resources: Any) -> list[str]:
    text = render(ScriptInput("n", tmp_path, "h", sbatch_args=lines, resources=Resources(**resources)))
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


@pytest.mark.parametrize("line", ["-o /tmp/x", "-J x", "--no-requeue", "--export NONE", "--parsable", "-D /tmp"])
def test_what_dethpc_does_by_its_own_means_is_left_out(line: str, tmp_path: Path) -> None:
    assert directives(tmp_path, line, "--mail-type=END") == [*directives(tmp_path), "--mail-type=END"]


@pytest.mark.parametrize(
    ("lines", "asked", "ours", "left"),
    [
        (["--signal=USR2"], "USR2@60", "B:", []),
        (["--mem=4G --signal B:USR1@90 --mail-type=END"], "B:USR1@90", "B:", ["--mem=4G", "--mail-type=END"]),
        (["#SBATCH --sig=RB:TERM", "--signal='10@5'"], "USR1@5", "B:", []),
        (["--signal=R:USR1"], "R:USR1@60", "RB:", []),
    ],
)
def test_the_users_own_signal_is_left_to_the_node_beside_that_of_dethpc(
    lines: list[str], asked: str, ours: str, left: list[str], tmp_path: Path
) -> None:
    given = directives(tmp_path, *lines)
    assert [line for line in given if line.startswith("--signal")] == [f"--signal={ours}USR1@60"]
    assert all(line in given for line in left)
    text = render(ScriptInput("n", tmp_path, "h", sbatch_args=lines))
    assert f"export DETHPC_SIGNAL={asked}\n" in text.replace("'", "")


@pytest.mark.parametrize("value", ["FOO", "B:", "USR1@70000"])
def test_a_signal_that_sbatch_would_refuse_is_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--signal=" + value):
        directives(tmp_path, f"--signal={value}")


def test_the_users_other_gres_stand_beside_the_gpus(tmp_path: Path) -> None:
    lines = directives(tmp_path, "--gres=tmp:100G,gres:license:1", gres="gpu:3090:2")
    assert [line for line in lines if line.startswith("--gres")] == [f"--gres=gpu:3090:2,tmp:{100 << 30},license:1"]
    assert directives(tmp_path, "--gres=gpu:1,tmp:100G")[-1] == "--gres=gpu:1,tmp:100G"
    with pytest.raises(ConfigError, match="sbatch would not take"):
        directives(tmp_path, "--gres=gpu:2080ti", gres="gpu:2")


@pytest.mark.parametrize(
    "line", ["--output=x", "--array=1-3", "--nodes=2", "--gpus-per-node=4", "-n 8", "--tasks-per-node=2", "x"]
)
def test_a_sites_options_are_none_that_a_trial_chooses(line: str) -> None:
    script.check_pools(["--exclusive --mail-type=END", "--gres=tmp:1G", "-c 4"], "a")
    with pytest.raises(ConfigError, match=r"pools\.a\.sbatch_args"):
        script.check_pools([line], "a")


@pytest.mark.parametrize("line", ["", "hello", "--", "'unclosed"])
def test_what_is_no_option_is_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="slurm.sbatch_args"):
        render(ScriptInput("n", tmp_path, "h", sbatch_args=[line]))


def test_every_mistake_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        render(ScriptInput("n", tmp_path, "h", sbatch_args=["--array=1", "-M x", "--mail-type=END"]))
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "tab\there"])
def test_what_no_directive_can_hold_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one line"):
        render(ScriptInput(name, tmp_path, "h"))


def test_what_is_no_variables_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="BAD NAME"):
        render(ScriptInput("n", tmp_path, "h", env={"BAD NAME": "x", "x; rm": "y"}))


def test_the_comment_says_whose_the_job_is_and_the_users_own_comes_after_it(tmp_path: Path) -> None:
    ours = "experiment 16 digits, trial 31, run 16.31.1 of dethpc"
    text = render(ScriptInput("16.31.1_digits_06a91921", tmp_path, "h", comment=ours, sbatch_args=["--comment=mine"]))
    lines = text.splitlines()
    assert "#SBATCH --job-name=16.31.1_digits_06a91921" in lines
    assert lines.index(f'#SBATCH --comment="{ours}"') < lines.index("#SBATCH --comment=mine"), "the last one counts"


def test_a_site_replaces_single_parts(tmp_path: Path) -> None:
    (tmp_path / "claim.j2").write_text("# the site's own {{ run_dir | sh }}\n")
    text = render(ScriptInput("n", tmp_path / "r", "h"), [tmp_path])
    assert f"# the site's own {tmp_path}/r" in text and "dethpc.exec claim" not in text and "srun" in text


def test_a_template_that_names_what_does_not_exist_is_an_error(tmp_path: Path) -> None:
    import jinja2

    (tmp_path / "claim.j2").write_text("{{ typo }}")
    with pytest.raises(jinja2.UndefinedError):
        render(ScriptInput("n", tmp_path, "h"), [tmp_path])


def test_an_upgrade_of_the_files_does_not_change_the_scripts_of_a_master_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in script._BUILT_IN]
    monkeypatch.setattr(script, "_BUILT_IN", files)
    for cache in (script.built_in, script.templates):
        cache.cache_clear()
    try:
        script.built_in()
        (tmp_path / "sbatch" / "header.j2").write_text("{{ of_another_release }}")
        shutil.rmtree(tmp_path / "tasks")
        assert render(ScriptInput("n", tmp_path, "h")).startswith("#!/bin/bash")
    finally:
        for cache in (script.built_in, script.templates):
            cache.cache_clear()
