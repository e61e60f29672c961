"""One node, for real: ``python -m dethpc.exec RUN_DIR``."""

import base64
import errno
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dethpc.core import _dummy_init
from dethpc.domain.reports import fault
from dethpc.errors import RunDirError
from dethpc.exec import node
from dethpc.exec.setup.environment import restored
from dethpc.rundir.claim import claim, claimed_by
from dethpc.rundir.files import read_json, write_json
from dethpc.rundir.journal import JournalWriter
from dethpc.rundir.journal import read as read_journal
from dethpc.rundir.logline import read_lines
from tests.exec.fixtures import ROOT, Run

SHOW = "import json, os, sys; print(json.dumps({'env': dict(os.environ), 'cwd': os.getcwd(), 'files': os.listdir()}))"


def test_a_good_run_reports_that_it_finished(run) -> None:
    code, end = run.run(["python3", "-c", "print('hello')"])
    assert code == 0
    assert end["finished"]
    assert (end["exit_code"], end["signal"], end["acked"], end["message"]) == (0, None, False, "")
    assert run.text() == "hello"
    started = read_json(run.attempt().started)
    assert (started["job_id"], started["nodes"], started["prior"]) == ("17", ["n0"], {})


def test_a_job_that_claims_its_run_loads_no_more_than_that_takes(tmp_path: Path) -> None:
    show = "import sys; from dethpc.exec import __main__ as m; print(m.main(['claim', sys.argv[1]]), *sys.modules)"
    environment = {**os.environ, "DETHPC_JOB_ID": "7"}
    words = [sys.executable, "-c", show, str(tmp_path)]
    code, *modules = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.split()
    rundir = {f"dethpc.rundir{part}" for part in ("", ".claim", ".files", ".layout")}
    ours = {name for name in modules if name.partition(".")[0] == "dethpc"}
    assert code == "0" and ours == {"dethpc", "dethpc.errors", "dethpc.exec", "dethpc.exec.__main__"} | rundir


def test_a_run_that_another_job_has_claimed_is_not_trained(run) -> None:
    """Also where nothing but this claims it: the script of a job on this machine leaves it to what it starts."""
    run.make(["touch", str(run.dir.path / "trained")])
    claim(run.dir, "16")
    code, output = run.finish(run.start())
    assert (code, output) == (0, "dethpc: job 16 already trains this run; job 17 has nothing to do\n")
    assert not run.attempt().started.exists() and not (run.dir.path / "trained").exists()


def test_a_job_claims_its_run_before_its_attempt_starts(run) -> None:
    run.run("true")
    assert claimed_by(run.dir) == "17"
    assert run.dir.claim.stat().st_mtime_ns <= run.attempt().started.stat().st_mtime_ns


def test_what_a_node_imports_is_not_looked_through_for_garbage(tmp_path: Path) -> None:
    show = (
        "import gc, sys; from dethpc.exec import __main__ as m; print(m.main([sys.argv[1]]), gc.isenabled(), "
        "gc.get_freeze_count() > 1000)"
    )
    done = subprocess.run([sys.executable, "-c", show, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "1 True True\n", done.stderr


def test_the_entrypoint_sees_determineds_variables_and_no_token(run) -> None:
    shown = hashlib.sha256(b"a certificate").hexdigest()
    write_json(run.dir.path / "master.json", {"url": "https://moved:1", "certificate": shown})
    content = base64.b64encode(b"a certificate").decode()
    (run.dir.path / "master.pem").write_text(f"-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----\n")
    run.run(
        ["python3", "-c", SHOW], {"a.txt": "x"}, slots=2, slots_per_node=2, latest_checkpoint="c-1", steps_completed=5,
        environment={"MINE": "a 'b' \"c\" $(d)\n\u00e9", "PYTHONPATH": "/mine"}, master_url="http://old:1",
    )  # fmt: skip
    shown = json.loads(run.printed())
    env = shown["env"]
    assert shown["files"] == ["a.txt"]
    assert env["DET_WORKDIR"] == shown["cwd"]
    assert env["MINE"] == "a 'b' \"c\" $(d)\n\u00e9"
    assert env["PYTHONPATH"].endswith(":/mine")
    expected = {
        "DET_MASTER": "https://moved:1", "DET_MASTER_CERT_FILE": str(run.dir.path / "master.pem"),
        "DET_CLUSTER_ID": "c0ffee00-test", "DET_AGENT_ID": "n0",
        "DET_ALLOCATION_ID": "7.1.2.0", "DET_TASK_ID": "7.1", "DET_TASK_TYPE": "TRIAL", "DET_SLOT_IDS": "[0, 1]",
        "DET_EXPERIMENT_ID": "7", "DET_TRIAL_ID": "1", "DET_TRIAL_RUN_ID": "2", "DET_TRIAL_SEED": "99",
        "DET_HPARAMS": '{"lr": 0.1}', "DET_LATEST_CHECKPOINT": "c-1", "DET_STEPS_COMPLETED": "5",
    }  # fmt: skip
    assert {name: env.get(name) for name in expected} == expected
    assert not any(word in value for value in env.values() for word in ("very-secret-token", "between-workers"))
    info = read_json(Path(env["DETHPC_INFO"]))
    assert info["session_token"] == f"very-secret-token-{run.dir.path}"
    assert info["worker_secret"] == f"between-workers-{run.dir.path}"
    assert Path(env["DETHPC_INFO"]).stat().st_mode & 0o777 == 0o600
    assert info["rendezvous"] == {"container_addrs": ["127.0.0.1"], "container_rank": 0, "container_slot_counts": [2]}
    assert len(set(info["ports"]["torch"] + info["ports"]["core"])) == 5


STEP = {
    "SLURM_JOB_ID": "17",
    "SLURM_NODEID": "0",
    "SLURM_NTASKS": "1",
    "SLURM_NTASKS_PER_NODE": "1",
    "SLURM_DISTRIBUTION": "cyclic",
    "SLURM_OVERLAP": "1",
    "SLURM_CPU_BIND": "quiet,none",
    "SLURM_STEP_ID": "0",
    "SLURM_UMASK": "0077",
    "SRUN_DEBUG": "3",
    "PMI_RANK": "0",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
}
BATCH = (
    "SLURM_JOB_ID=17 SLURM_NODEID=0 SLURM_CPUS_PER_TASK=8 SLURM_GPUS_PER_TASK=1 SLURM_TASKS_PER_NODE=4 "
    "SLURM_JOB_NAME=50%25%20of%0Ait SLURM_CPUS_ON_NODE=8 CUDA_VISIBLE_DEVICES=4,5,6,7 "
)


def test_user_code_sees_slurms_variables_of_the_batch_script_and_none_of_the_step(run) -> None:
    run.make(["python3", "-c", SHOW], slots=4, slots_per_node=4)
    run.finish(run.start(**STEP, DETHPC_SLURM=BATCH, OMPI_MCA_btl="self,tcp"))
    env = json.loads(run.printed())["env"]
    slurms = {name: value for name, value in env.items() if name.startswith(("SLURM", "SRUN", "PMI", "DETHPC_SLURM"))}
    assert slurms.pop("SLURM_SUBMIT_DIR") == env["DET_WORKDIR"]
    assert slurms == {
        "SLURM_JOB_ID": "17",
        "SLURM_NODEID": "0",
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_GPUS_PER_TASK": "1",
        "SLURM_TASKS_PER_NODE": "4",
        "SLURM_JOB_NAME": "50% of\nit",
        "SLURM_CPUS_ON_NODE": "8",
    }
    assert (env["OMPI_MCA_btl"], env["DET_SLOT_IDS"]) == ("self,tcp", "[4, 5, 6, 7]")


def test_on_several_nodes_user_code_sees_what_a_task_of_srun_sees_but_not_its_requests() -> None:
    step = {**STEP, "SLURM_NODEID": "1", "SLURM_NTASKS": "2", "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1", "HOME": "/root"}
    assert restored({**step, "DETHPC_SLURM": BATCH}, task=True) == {
        "HOME": "/root",
        **{name: step[name] for name in ("SLURM_JOB_ID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE")},
        **{name: step[name] for name in ("SLURM_STEP_ID", "CUDA_VISIBLE_DEVICES")},
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_GPUS_PER_TASK": "1",
        "SLURM_TASKS_PER_NODE": "4",
        "SLURM_JOB_NAME": "50% of\nit",
        "SLURM_CPUS_ON_NODE": "8",
    }


@pytest.mark.parametrize(
    ("entrypoint", "replaced"),
    [
        ("python3 train.py --lr 0.1", True),
        ("python3 train.py --name 'a; b' > log 2>&1", True),
        ("bash wrapper.sh", True),
        ("exit 7", False),
        ("cd inner && python3 train.py", False),
        ("python3 train.py; echo over", False),
        ("python3 train.py | tee log", False),
        ("python3 train.py &", False),
        ("LR=1 python3 train.py", False),
        ("$PROGRAM train.py", False),
        ("python3 $(which train.py)", False),
        ("python3 train.py\necho over", False),
        ("python3 'open", False),
    ],
)
def test_a_program_takes_the_place_of_a_shell_that_has_nothing_else_to_do(entrypoint: str, replaced: bool) -> None:
    """Some shells let it by themselves, others do not: the end of the program is then that of the entrypoint."""
    assert node.command(entrypoint) == ["/bin/sh", "-c", f"exec {entrypoint}" if replaced else entrypoint]
    exported = {"BASH_FUNC_python3%%": "() { command python3 }", "BASH_FUNC_bash%%": "() { :; }"}
    assert node.command(entrypoint, 0, exported) == ["/bin/sh", "-c", entrypoint]


def test_a_string_goes_through_a_shell(run) -> None:
    code, end = run.run('A=3; test $A = 3 && echo "it\'s $A" && exit 4')
    assert (code, end["exit_code"], end["message"], run.text().split("\n")[0]) == (4, 4, "exit code 4", "it's 3")
    assert not end["finished"]


@pytest.mark.parametrize("entrypoint", [["pyhton3", "train.py"], "pyhton3 train.py", "A=1 exec pyhton3 train.py"])
def test_a_missing_entrypoint_is_named(run, entrypoint) -> None:
    code, end = run.run(entrypoint)
    assert (code, end["phase"], end["message"]) == (127, "train", "entrypoint not found: pyhton3")
    assert any("pyhton3" in line for line in end["tail"])


@pytest.mark.parametrize(
    ("entrypoint", "told"),
    [("python3 trian.py", "trian.py"), (["python3", "-m", "trian"], "trian"), ("bash trian.sh", "trian.sh")],
)
def test_a_script_that_is_not_there_is_named(run, entrypoint, told) -> None:
    code, end = run.run(entrypoint)
    assert code != 0 and end["message"].startswith(f"exit code {code}: ") and told in end["message"]


@pytest.mark.parametrize("entrypoint", [["./job.sh"], "./job.sh", "sh job.sh"])
@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_a_command_that_a_script_misses_is_not_taken_for_the_entrypoint(run, shell, entrypoint) -> None:
    run.make(entrypoint, {"job.sh": f"#!/bin/{shell}\ntrue\nnosuchcommand 1\n"})
    code, _ = run.finish(run.start())
    message = run.end()["message"]
    assert code == 127 and message.startswith("exit code 127: ")
    assert "job.sh: " in message and "nosuchcommand: " in message


@pytest.mark.parametrize("entrypoint", [["./data.txt"], "./data.txt"])
def test_an_entrypoint_that_cannot_be_executed_is_named(run, entrypoint) -> None:
    files = {"data.txt": "x"}
    run.make("true", files)
    run.make(["sh", "-c", "chmod 600 data.txt; exec ./data.txt"] if entrypoint == ["./data.txt"] else
             "chmod 600 data.txt; ./data.txt", files)  # fmt: skip
    code, _ = run.finish(run.start())
    assert code == 126
    assert run.end()["message"] == "entrypoint is not executable: ./data.txt"


def test_a_trial_class_that_is_not_there_is_named(run) -> None:
    run.make("model_def:Outer.MyTrial")
    code, _ = run.finish(run.start())
    assert (code, run.end()["phase"]) == (1, "train")
    assert run.end()["message"].startswith("exit code 1: harness: there is no module 'model_def' in ")


def test_a_traceback_is_the_message(run) -> None:
    program = "import sys\ntry:\n    1/0\nexcept Exception as e:\n    raise ValueError('bad lr') from e\n"
    code, end = run.run(["python3", "train.py"], {"train.py": program})
    assert (code, end["message"]) == (1, "exit code 1: ValueError: bad lr")
    assert "ValueError: bad lr" in end["tail"]
    lines, _ = read_lines(run.attempt().log(0))
    assert {line.level for line in lines if "Error" in line.text or "Traceback" in line.text} == {"ERROR"}


def test_a_signal_is_reported(run) -> None:
    code, end = run.run(["python3", "-c", "import os; os.kill(os.getpid(), 9)"])
    assert (code, end["exit_code"], end["signal"]) == (137, 137, 9)
    assert end["message"].startswith("killed by signal 9 (SIGKILL)")


def test_core_hears_of_the_time_limit(run) -> None:
    run.make(["python3", "-c", "import os; print(open(os.environ['DETHPC_INFO']).read())"])
    end = time.time() + 3600
    run.finish(run.start(DETHPC_DEADLINE=str(int(end))))
    assert json.loads(run.printed())["stop_at"] == pytest.approx(end - 60, abs=2)


def test_levels_and_ranks_are_told_apart(run) -> None:
    program = (
        "import sys\nprint('[rank=3] WARNING:root: low\\x1b[0m')\nprint('INFO: ok')\n"
        "print('[2024-01-01 10:00:00,123] ERROR in x')\nprint('2024-01-01 10:00:00,123 - DEBUG - y')\n"
        "sys.stderr.write('INFORMAL: plain\\n')\nprint('a\\rb\\r\\nc', end='')\n"
    )
    run.run(["python3", "-u", "train.py"], {"train.py": program})
    lines, _ = read_lines(run.attempt().log(0))
    assert [(line.level, line.rank, line.text) for line in lines if line.stdtype == "stdout"] == [
        ("WARNING", 3, "WARNING:root: low\x1b[0m"),
        ("INFO", None, "INFO: ok"),
        ("ERROR", None, "[2024-01-01 10:00:00,123] ERROR in x"),
        ("DEBUG", None, "2024-01-01 10:00:00,123 - DEBUG - y"),
        ("INFO", None, "a"),
        ("INFO", None, "b"),
        ("INFO", None, "c"),
    ]
    assert [(line.level, line.text) for line in lines if line.stdtype == "stderr"] == [("INFO", "INFORMAL: plain")]


def test_a_flood_of_output_arrives_whole(run) -> None:
    run.run(["python3", "-c", "for i in range(200000): print('line', i)"])
    lines, _ = read_lines(run.attempt().log(0))
    assert [line.text for line in lines] == [f"line {i}" for i in range(200000)]


def test_mounts_below_the_working_directory_are_links(run, tmp_path) -> None:
    host = tmp_path / "data"
    host.mkdir()
    (host / "x").write_text("kept")
    paths = ["data", "/run/determined/workdir/deep/er", "in_context", "/elsewhere", "../outside"]
    mounts = [{"host_path": str(host), "container_path": path} for path in paths]
    mounts.append({"host_path": str(tmp_path / "absent"), "container_path": "absent"})
    code, _ = run.run(
        "cat data/x deep/er/x in_context/x && ls -d absent ../outside; echo new > data/y",
        {"in_context/old": ""},
        config={"bind_mounts": mounts},
    )
    assert code == 0
    assert "keptkeptkept" in run.text()
    assert f"absent is skipped, because this node has no {tmp_path}/absent" in run.text()
    assert run.text().count("No such file") == 2 or run.text().count("cannot access") == 2, run.text()
    assert sorted(os.listdir(host)) == ["x", "y"]


def test_the_hook_runs_first_in_the_context(run) -> None:
    hook = "echo from the hook\npwd > here\n"
    code, _ = run.run("cat here", {"startup-hook.sh": hook})
    assert code == 0
    first, second = run.text().split("\n")
    assert first == "from the hook"
    assert second.startswith(str(run.scratch))


def test_a_failing_hook_fails_the_run_with_its_last_lines(run) -> None:
    code, end = run.run("echo never", {"startup-hook.sh": "echo about to fail\nexit 3\n"})
    assert (code, end["phase"], end["exit_code"]) == (3, "hook", 3)
    assert end["message"] == "startup-hook.sh exited with 3"
    assert "about to fail" in end["tail"]
    assert "dethpc: startup-hook.sh exited with 3" in run.text()
    assert "never" not in run.text()


def test_what_the_hook_leaves_running_lives_until_the_end(run) -> None:
    hook = "(while :; do sleep 0.1; touch alive; done) &\n"
    code, _ = run.run("rm -f alive; sleep 0.5; test -e alive", {"startup-hook.sh": hook})
    assert code == 0


def test_a_damaged_context_is_said(run) -> None:
    run.make("true")
    (run.dir.path / "context.tar.gz").write_bytes(b"other")
    code, _ = run.finish(run.start())
    assert code == 1
    assert run.end()["phase"] == "unpack"
    assert "damaged" in run.end()["message"]


@pytest.mark.parametrize(
    ("number", "phase"), [(errno.ENOSPC, "storage"), (errno.EDQUOT, "storage"), (errno.EIO, "unpack")]
)
def test_a_context_for_which_there_is_no_room_anywhere_is_waited_for(run, number, phase) -> None:
    """That is no failure of the trial's, and what it waits for is named."""
    run.make("true")
    full = (
        "import sys; from dethpc.exec import __main__; from dethpc.exec.setup import unpack\n"
        f"def full(archive, into): raise OSError({number}, 'cannot write', into)\n"
        "unpack.unpack = full; sys.exit(__main__.main([sys.argv[1]]))"
    )
    words = {"ATTEMPT": "0", "JOB_ID": "17", "NODE_RANK": "0", "NODES": "n0", "ADDRESSES": "127.0.0.1"}
    environment = {**os.environ, **{f"DETHPC_{name}": value for name, value in words.items()}}
    assert subprocess.run([sys.executable, "-c", full, str(run.dir.path)], env=environment, check=False).returncode == 1
    assert run.end()["phase"] == phase
    assert f"cannot write: '{run.attempt().path}" in run.end()["message"]


def test_a_closed_run_does_not_train(run) -> None:
    run.make("true")
    write_json(run.dir.closed, {"intent": "stop", "reason": "pause", "at": 0})
    code, output = run.finish(run.start())
    assert code == 0
    assert "closed" in output
    assert not run.attempt().started.exists()


def test_a_run_that_is_closed_while_its_attempt_starts_does_not_train(run, monkeypatch) -> None:
    """A master that sees neither the job nor a start of it closes the run and goes on in another, which may begin at once."""
    run.make("true")
    for name, value in {
        "ATTEMPT": "0",
        "JOB_ID": "17",
        "NODE_RANK": "0",
        "NODES": "n0",
        "ADDRESSES": "127.0.0.1",
    }.items():
        monkeypatch.setenv(f"DETHPC_{name}", value)
    find = node.resuming.find

    def closed_meanwhile(*asked):
        write_json(run.dir.closed, {"intent": "end", "reason": "it has ended", "at": 0})
        return find(*asked)

    monkeypatch.setattr(node.resuming, "find", closed_meanwhile)
    assert node.run(run.dir, 0o022) == 0
    assert run.attempt().started.exists(), "who looks after closing it sees that one began"
    assert run.end() is None
    assert run.attempt().nodes_with_logs() == []


def test_an_attempt_starts_once(run) -> None:
    run.run("true")
    code, output = run.finish(run.start())
    assert code == 1
    assert "already been started" in output
    assert run.end()["finished"]


@pytest.mark.parametrize("end", ["true", "exit 5"])
def test_nothing_outlives_the_entrypoint(run, end) -> None:
    """Neither a background job, nor a daemon in a session of its own, nor one that ignores TERM."""
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(600)\n"
    code, _ = run.run(f"sleep 600 & (trap '' TERM; sleep 600) & python3 d.py; {end}", {"d.py": daemon})
    assert code == (0 if end == "true" else 5)
    assert run.survivors() == []


def test_term_asks_user_code_to_stop_and_does_not_kill_it(run) -> None:
    """As a launcher does: a shell round a Python, both of which would die of TERM."""
    run.make("python3 train.py; echo over", {"train.py": WAITS_FOR_STOP}, grace=600)
    node = run.start()
    run.wait_until(lambda: "ready" in run.text())
    os.killpg(node.pid, signal.SIGTERM)
    code, _ = run.finish(node)
    assert code == 0
    end = run.end()
    assert (end["acked"], end["finished"], end["stop_reason"]) == (True, False, "preempted")
    stop = read_json(run.attempt().stop)
    assert stop["deadline"] == pytest.approx(stop["at"] + 600)
    assert run.text().split("\n") == ["ready", "stopping", "over"]


WAITS_FOR_STOP = """
import os, time
print("ready", flush=True)
attempt = os.path.dirname(os.environ["DETHPC_INFO"])
while not os.path.exists(attempt + "/stop.json"):
    time.sleep(0.05)
print("stopping", flush=True)
open(attempt + "/ack.json", "w").write("{}")
"""


@pytest.mark.parametrize("ignored", [(), (signal.SIGTERM, signal.SIGUSR1, signal.SIGQUIT)])
def test_user_code_and_the_hook_have_the_default_dispositions_and_no_signal_blocked(run, ignored) -> None:
    """As a script under sbatch, whatever the node process itself has, or has inherited: a shell ignores QUIT in the background."""
    show = "import signal\nprint(*(l for l in open('/proc/self/status') if l[:6] in ('SigBlk', 'SigIgn', 'SigCgt')), sep='')\n"
    files = {"show.py": show, "startup-hook.sh": "python3 show.py\nsh -c 'cat /proc/self/status'"}
    run.make("python3 show.py; cat /proc/self/status", files)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    try:
        node = run.start()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    run.finish(node)
    found = [line.split(":") for line in run.printed().split("\n") if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]
    python = {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT}  # what Python itself ignores or handles
    assert len(found) == 12
    for name, mask in found:
        numbers = {n for n in signal.valid_signals() if int(mask, 16) >> n - 1 & 1}
        assert not numbers & set(ignored) and numbers <= python, (name, numbers)


PROTECTED = """
import os, signal, sys, time
came = []
signal.signal(signal.SIGTERM, lambda *_: came.append(1))
print("ready", flush=True)
attempt = os.path.dirname(os.environ["DETHPC_INFO"])
while not came:
    time.sleep(0.05)
time.sleep(1)
print("saved", flush=True)
if sys.argv[1] == "acks":
    open(attempt + "/ack.json", "w").write("{}")
sys.exit(int(sys.argv[2]))
"""


def term_to_every_process(run, node) -> None:
    """As proctrack/linuxproc: children first."""
    run.wait_until(lambda: "ready" in run.text())
    for line in sorted(run.survivors(), key=lambda line: f"({node.pid})" in line):
        os.kill(int(line.rpartition("(")[2][:-1]), signal.SIGTERM)


@pytest.mark.parametrize(
    ("words", "code", "acked"),
    [
        ("acks 0", 0, True),
        ("acks 3", 3, True),
        ("leaves 0", 128 + signal.SIGTERM, False),  # what else its shell had to do has not been done
    ],
)
@pytest.mark.parametrize(
    "entrypoint",
    ["python3 train.py {}; echo after", "bash -c 'python3 train.py {}; true' && true", "exec python3 train.py {}"],
)
def test_term_to_every_process_leaves_the_verdict_to_what_withstands_it(run, entrypoint, words, code, acked) -> None:
    run.make(
        entrypoint.format(words) + (" | cat" if entrypoint.startswith("bash") else ""),
        {"train.py": PROTECTED},
        grace=600,
    )
    node = run.start()
    term_to_every_process(run, node)
    run.finish(node)
    end = run.end()
    direct = entrypoint.startswith("exec")
    assert (end["exit_code"], end["acked"]) == (0 if direct and not acked else code, acked)
    assert end["finished"] == (direct and words == "leaves 0")
    assert end["stop_reason"] == "preempted"
    assert "after" not in run.text()


@pytest.mark.parametrize("node_first", [False, True])
def test_a_shell_that_goes_on_before_term_comes_to_it_ends_no_checkpoint(run, node_first) -> None:
    saves_slowly = PROTECTED.replace("sleep(1)", "sleep(4)")  # longer than a process has that is left behind
    run.make("sh -c 'python3 train.py acks 0; true'; echo over", {"train.py": saves_slowly}, grace=600)
    node = run.start()
    run.wait_until(lambda: "ready" in run.text())
    (training,) = [int(line.rpartition("(")[2][:-1]) for line in run.survivors() if line.startswith("python3 train")]
    shell = int(Path(f"/proc/{training}/stat").read_text().rpartition(")")[2].split()[1])
    for pid in sorted((training, shell, node.pid), key=lambda pid: (pid == node.pid) != node_first):
        os.kill(pid, signal.SIGTERM)
    run.finish(node)
    assert run.text().split("\n").count("over") == 1 and "saved" in run.text()
    end = run.end()
    assert (end["exit_code"], end["acked"], end["stop_reason"], end["finished"]) == (0, True, "preempted", False)


@pytest.mark.parametrize("services", [[], [{"port": 8000, "kind": "tcp"}]])
def test_what_term_ends_before_it_protects_itself_was_asked_to_stop(run, services) -> None:
    run.make("bash -c 'echo ready; sleep 600'; true", services=services)
    node = run.start()
    run.wait_until(lambda: not services or run.attempt().relay.exists())
    term_to_every_process(run, node)
    run.finish(node)
    end = run.end()
    assert (end["exit_code"], end["signal"], end["stop_reason"], end["finished"]) == (143, 15, "preempted", False)


def test_what_withstands_term_is_ended_at_the_deadline(run) -> None:
    stays = "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: None)\nprint('ready', flush=True)\ntime.sleep(600)\n"
    run.make("python3 train.py; true", {"train.py": stays}, grace=4)
    node = run.start()
    term_to_every_process(run, node)
    run.finish(node)
    assert run.end()["message"] == "it did not stop in the time allowed"
    assert run.end()["stop_reason"] == "preempted"


def test_a_process_that_its_shell_leaves_behind_is_ended_with_it_where_nobody_asked_to_stop(run) -> None:
    run.make("python3 train.py acks 0 & sleep 1; kill -TERM $$", {"train.py": PROTECTED})
    run.finish(run.start())
    assert (run.end()["exit_code"], run.end()["stop_reason"]) == (143, None)


ENDS_CHILDREN = """
import concurrent.futures, multiprocessing as mp, os, signal, subprocess, sys, time
def sleeps(*_):
    time.sleep(600)
if __name__ == "__main__":
    mp.set_start_method(sys.argv[1])
    mp.Process(target=sleeps, daemon=True).start()
    process = mp.Process(target=sleeps); process.start(); process.terminate(); process.join()
    print("process", process.exitcode)
    pool = mp.Pool(2); pool.apply_async(sleeps); pool.terminate(); pool.join()
    with mp.Pool(2) as pool:
        pool.apply_async(sleeps)
    child = subprocess.Popen(["sleep", "600"]); child.terminate()
    print("subprocess", child.wait())
    pid = os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ); os.kill(pid, signal.SIGTERM)
    print("spawned", os.WTERMSIG(os.waitpid(pid, 0)[1]))
    executor = concurrent.futures.ProcessPoolExecutor(1); executor.submit(sleeps)
    time.sleep(0.5)
    for worker in executor._processes.values():
        worker.terminate()
    executor.shutdown()
    print("done", flush=True)
"""
SHELLS = """
sleep 600 & monitor=$!; kill $monitor; wait $monitor; echo "monitor $?"
bash -c 'trap "echo nested TERM; exit 7" TERM; (sleep 0.5; kill -TERM $$) & while :; do sleep 0.1; done'; echo "nested $?"
(trap 'echo subshell USR1' USR1; kill -USR1 $BASHPID; sleep 0.1)
timeout 1 sleep 600; echo "timeout $?"
{ trap 'echo outer USR1' USR1; kill -USR1 $$; sleep 0.1; }
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_what_user_code_ends_by_term_ends(run, method) -> None:
    code, end = run.run(["python3", "ends.py", method], {"ends.py": ENDS_CHILDREN})
    assert (code, end["finished"]) == (0, True), run.text()
    assert [line for line in run.printed().split("\n") if line] == [
        "process -15",
        "subprocess -15",
        "spawned 15",
        "done",
    ]


def test_traps_and_kills_of_shells_work(run) -> None:
    run.run("bash shells.sh", {"shells.sh": SHELLS})
    said = ["monitor 143", "nested TERM", "nested 7", "subshell USR1", "timeout 124", "outer USR1"]
    assert run.printed().split("\n") == said, run.text()


def test_usr1_means_the_time_limit(run) -> None:
    run.make(["python3", "train.py"], {"train.py": WAITS_FOR_STOP})
    node = run.start()
    run.wait_until(lambda: "ready" in run.text())
    node.send_signal(signal.SIGUSR1)
    run.finish(node)
    assert run.end()["stop_reason"] == "time_limit"


def test_the_first_reason_to_stop_stands(run) -> None:
    run.make(["python3", "train.py"], {"train.py": WAITS_FOR_STOP})
    node = run.start()
    run.wait_until(lambda: "ready" in run.text())
    write_json(run.attempt().stop, {"reason": "pause", "at": 1.0, "deadline": None})
    node.send_signal(signal.SIGTERM)
    run.finish(node)
    assert run.end()["stop_reason"] == "pause"


def test_a_deadline_that_passes_kills(run) -> None:
    run.make("trap '' TERM INT; echo ready; while :; do sleep 0.1; done", grace=2)
    node = run.start()
    run.wait_until(lambda: "ready" in run.text())
    node.send_signal(signal.SIGTERM)
    code, _ = run.finish(node)
    end = run.end()
    assert (code, end["signal"], end["stop_reason"]) == (137, 9, "preempted")
    assert "did not stop in the time" in end["message"]


def test_closed_with_intent_kill_ends_user_code(run) -> None:
    run.make("trap '' TERM; echo ready; sleep 600 & sleep 600")
    node = run.start()
    run.wait_until(lambda: "ready" in run.text())
    write_json(run.dir.closed, {"intent": "kill", "reason": "the user killed it", "at": 0})
    node.send_signal(signal.SIGTERM)  # the scheduler's, which was asked to cancel the job
    code, _ = run.finish(node)
    assert (code, run.end()["signal"]) == (137, 9)
    assert run.end()["message"] == "killed: the user killed it"


def test_asked_to_stop_before_training_it_does_not_begin(run) -> None:
    run.make("echo never")
    run.attempt().make()
    write_json(run.attempt().stop, {"reason": "pause", "at": 1.0, "deadline": None})
    code, _ = run.finish(run.start())
    end = run.end()
    assert (code, end["finished"], end["acked"], end["stop_reason"]) == (0, False, True, "pause")
    assert run.text() == ""


def test_a_later_attempt_goes_on_from_the_last_checkpoint_that_exists(run, tmp_path) -> None:
    storage = {"type": "shared_fs", "host_path": str(tmp_path), "storage_path": "checkpoints"}
    for uuid in ("c-1", "c-2", "c-void"):
        (tmp_path / "checkpoints" / uuid).mkdir(parents=True)
    run.make(["python3", "-c", SHOW], checkpoint_storage=storage, latest_checkpoint="c-0", steps_completed=1)
    for k, uuids in ((0, ["c-1"]), (1, ["c-2", "c-gone"])):
        run.attempt(k).make()
        with JournalWriter(run.attempt(k).journal) as journal:
            for n, uuid in enumerate(uuids):
                journal.append("checkpoint", {"uuid": uuid, "steps_completed": 10 * (k + 1) + n})
    # Attempt 1 began after one event of attempt 0; what a lost node of attempt 0 wrote after that is void.
    with JournalWriter(run.attempt(0).journal) as journal:
        journal.append("checkpoint", {"uuid": "c-void", "steps_completed": 99})
    write_json(run.attempt(1).started, {"prior": {"0": 1}})
    run.finish(run.start(k=2))
    env = json.loads(run.printed(k=2))["env"]
    assert (env["DET_LATEST_CHECKPOINT"], env["DET_STEPS_COMPLETED"]) == ("c-2", "20")
    started = read_json(run.attempt(2).started)
    assert (started["resumed_from"], started["resumed_steps"], started["prior"]) == ("c-2", 20, {"0": 1, "1": 2})


@pytest.mark.parametrize("section", [{"tensorboard_path": "tb"}, {"checkpoint_path": "old"}, {"storage_path": "s"}])
@pytest.mark.parametrize("whose", ["the configuration's", "the training code's"])
def test_a_later_attempt_looks_where_core_stored_the_checkpoint(run, tmp_path, section, whose) -> None:
    section = {"type": "shared_fs", "host_path": str(tmp_path / "fs"), **section}
    with _dummy_init(checkpoint_storage=section).checkpoint.store_path({"steps_completed": 5}) as (_, uuid):
        pass
    configured = section if whose == "the configuration's" else {"type": "directory", "container_path": str(tmp_path)}
    run.make(["python3", "-c", SHOW], checkpoint_storage=configured, latest_checkpoint="c-0", steps_completed=1)
    run.attempt(0).make()
    with JournalWriter(run.attempt(0).journal) as journal:
        told = None if whose == "the configuration's" else section
        journal.append("checkpoint", {"uuid": uuid, "steps_completed": 5, "storage": told})
    run.finish(run.start(k=1))
    env = json.loads(run.printed(k=1))["env"]
    assert (env["DET_LATEST_CHECKPOINT"], env["DET_STEPS_COMPLETED"]) == (uuid, "5")


def test_a_storage_that_cannot_be_written_is_told_before_training(run, tmp_path) -> None:
    (tmp_path / "fs").mkdir()
    section = {"type": "shared_fs", "host_path": str(tmp_path / "fs")}
    code, _ = run.run(["python3", "-c", "print('trains')"], checkpoint_storage=section)
    assert code == 0 and run.text() == "Validating checkpoint storage ...\ntrains"
    assert list((tmp_path / "fs").iterdir()) == []
    (tmp_path / "file").touch()
    run.make(["python3", "-c", "print('trains')"], checkpoint_storage={**section, "host_path": str(tmp_path / "file")})
    code, _ = run.finish(run.start(k=1))
    assert code == 1 and "trains" not in run.text(k=1)
    assert run.end(1)["message"].startswith("Checkpoint storage validation failed: [Errno 20] Not a directory")


def test_training_begins_while_a_storage_that_has_worked_is_away(run, tmp_path) -> None:
    pytest.importorskip("s3fs")
    keys = {"access_key": "a", "secret_key": "s"}
    section = {"type": "s3", "bucket": "b", "endpoint_url": "http://127.0.0.1:9", **keys}  # the port where nobody is
    run.make(["python3", "-c", "print('trains')"], checkpoint_storage=section, storage_worked=True)
    code, _ = run.finish(run.start())
    assert code == 0 and run.text().endswith("\ntrains")
    assert "the training begins while its storage is away" in run.text()


def test_a_missing_checkpoint_is_reported_where_an_earlier_one_is_there(run, tmp_path) -> None:
    storage = {"type": "shared_fs", "host_path": str(tmp_path / "fs")}
    (tmp_path / "fs" / "c-1").mkdir(parents=True)
    known = [{"uuid": f"c-{n}", "steps_completed": n} for n in (3, 2, 1)]
    run.make(["python3", "-c", SHOW], checkpoint_storage=storage, latest_checkpoint="c-3", checkpoints=known)
    run.attempt(0).make()
    with JournalWriter(run.attempt(0).journal) as journal:
        journal.append("checkpoint_damaged", {"uuid": "c-3", "why": "bits"})
    run.finish(run.start(k=1))
    env = json.loads(run.printed(k=1))["env"]
    assert (env["DET_LATEST_CHECKPOINT"], env["DET_STEPS_COMPLETED"]) == ("c-1", "1")
    reports, _ = read_journal(run.attempt(1).journal)
    assert [(r.kind, r.data["uuid"]) for r in reports] == [("checkpoint_damaged", "c-2")]
    assert [fault(report) for report in reports] == [""]


@pytest.mark.parametrize("source", [None, "theirs"])
def test_where_none_of_the_trials_checkpoints_is_found_nothing_starts(run, tmp_path, source) -> None:
    """Another storage is mounted there, more likely than not: nobody begins at 0, and no checkpoint is called damaged."""
    storage = {"type": "shared_fs", "host_path": str(tmp_path / "fs")}
    (tmp_path / "fs" / "another").mkdir(parents=True)
    known = [{"uuid": "c-1", "steps_completed": 1}]
    run.make(
        ["python3", "-c", SHOW],
        checkpoint_storage=storage,
        latest_checkpoint="c-1",
        checkpoints=known,
        source_checkpoint=source,
    )
    code, said = run.finish(run.start())
    assert code == 1 and "none of the trial's checkpoints is in" in said
    assert not run.attempt(0).started.exists() and not run.attempt(0).journal.exists()


@pytest.mark.parametrize("place", ["a mount point", "nothing at all", "a file server that fails"])
def test_a_folder_that_is_not_mounted_is_a_storage_that_is_away(run, tmp_path, place) -> None:
    folder = tmp_path / "fs"
    if place == "a mount point":
        folder.mkdir()
    elif place == "a file server that fails":
        folder.symlink_to(folder)  # ELOOP
    known = [{"uuid": "c-1", "steps_completed": 1}]
    storage = {"type": "shared_fs", "host_path": str(folder)}
    run.make(["python3", "-c", SHOW], checkpoint_storage=storage, latest_checkpoint="c-1", checkpoints=known)
    code, said = run.finish(run.start())
    assert code == 1, said
    assert (run.end()["phase"], read_json(run.attempt().started)["resumed_from"]) == ("storage", "c-1")
    assert str(folder) in run.end()["message"] and not run.attempt(0).journal.exists()


def test_a_storage_of_its_own_that_is_away_is_no_loss_of_its_checkpoints(run, tmp_path) -> None:
    """Training code chose another storage for the last ones, of which this node sees nothing that it knows."""
    storage, other = ({"type": "shared_fs", "host_path": str(tmp_path / name)} for name in ("fs", "other"))
    (tmp_path / "other" / "another").mkdir(parents=True)
    (tmp_path / "fs" / "c-1").mkdir(parents=True)
    known = [
        {"uuid": "c-3", "steps_completed": 3, "storage": other},
        {"uuid": "c-2", "steps_completed": 2, "storage": other},
    ]
    known += [{"uuid": "c-1", "steps_completed": 1}]
    run.make(["python3", "-c", SHOW], checkpoint_storage=storage, latest_checkpoint="c-3", checkpoints=known)
    code, said = run.finish(run.start())
    assert code == 1 and f"none of the trial's checkpoints is in {tmp_path / 'other'}" in said
    assert not run.attempt(0).journal.exists(), "none of them is called damaged"
    (tmp_path / "other" / "c-2").mkdir(parents=True)
    run.finish(run.start(k=1))
    assert json.loads(run.printed(k=1))["env"]["DET_LATEST_CHECKPOINT"] == "c-2"


ONCE = """
from dethpc.storage.driver import Driver
again = Driver.again
Driver.again = lambda driver, call, patience: again(driver, call, 0.0)  # a store that is away is asked once
"""


def test_an_attempt_whose_storage_does_not_answer_says_so_and_ends_before_its_hook(run, tmp_path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ONCE)
    nobody = "http://127.0.0.1:9"
    storage = {"type": "hdfs", "hdfs_url": nobody, "hdfs_path": "/checkpoints"}
    known = [{"uuid": "c-2", "steps_completed": 2}, {"uuid": "c-1", "steps_completed": 1}]
    files = {"startup-hook.sh": "echo the hook has run\n"}
    run.make(["python3", "-c", SHOW], files, checkpoint_storage=storage, latest_checkpoint="c-2", checkpoints=known)
    code, said = run.finish(run.start(PYTHONPATH=f"{tmp_path}:{ROOT}"))
    assert code == 1, said
    end, started = run.end(), read_json(run.attempt().started)
    assert (end["phase"], started["resumed_from"], started["resumed_steps"]) == ("storage", "c-2", 2)
    assert nobody in end["message"] and "the hook has run" not in run.text()


def test_all_checkpoints_damaged_begins_where_the_trial_began(run, tmp_path) -> None:
    known = [{"uuid": "c-1", "steps_completed": 1}]
    run.make(["python3", "-c", SHOW], latest_checkpoint="c-1", checkpoints=known, source_checkpoint="theirs")
    run.attempt(0).make()
    with JournalWriter(run.attempt(0).journal) as journal:
        journal.append("checkpoint_damaged", {"uuid": "c-1", "why": "bits"})
    run.finish(run.start(k=1))
    env = json.loads(run.printed(k=1))["env"]
    assert (env["DET_LATEST_CHECKPOINT"], env["DET_STEPS_COMPLETED"]) == ("theirs", "0")


def test_the_configuration_in_the_environment_shows_no_secret_and_the_file_of_the_run_has_it(run) -> None:
    config = {"name": "x", "environment": {"registry_auth": {"password": "hush"}}}
    run.run('echo "$DET_EXPERIMENT_CONFIG"; cat $DETHPC_INFO', config=config)
    shown, info = run.text().split("\n", 1)
    assert json.loads(shown)["environment"] == {"registry_auth": {"password": "********"}}
    assert json.loads(info)["trial"]["config"] == config


def test_a_configuration_that_is_too_long_for_a_variable_is_in_the_file_of_the_run_alone(run) -> None:
    config = {"name": "x", "data": {"words": "w" * (128 << 10)}}
    run.run('echo "${DET_EXPERIMENT_CONFIG-none} $DET_HPARAMS"; wc -c < $DETHPC_INFO', config=config)
    shown, size = run.text().split("\n", 1)
    assert shown == 'none {"lr": 0.1}' and int(size) > 128 << 10


def test_who_holds_the_runs_token_dumps_no_core_and_user_code_does_as_the_user_wants(run) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        pytest.skip("nothing dumps core here")
    run.make(["bash", "-c", "ulimit -S -c; grep core /proc/$PPID/limits"])
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        node = run.start()
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    run.finish(node)
    mine, holders = run.text().split("\n")
    assert mine in ("unlimited", str(hard // 1024)) and holders.split()[4] == "0"


def test_files_of_user_code_follow_the_users_umask(run) -> None:
    old = os.umask(0o027)
    try:
        run.run("umask")
    finally:
        os.umask(old)
    assert run.text() == "0027"
    assert run.attempt().log(0).stat().st_mode & 0o777 == 0o600


def test_the_folder_of_a_killed_attempt_is_removed_by_the_next_of_any_run(run, tmp_path) -> None:
    run.make("touch $GO; sleep 1000", environment={"GO": str(tmp_path / "go")})
    killed = run.start()
    run.wait_until(lambda: (tmp_path / "go").exists())
    run.kill()
    assert killed.returncode == -signal.SIGKILL and len(os.listdir(run.scratch)) == 1
    other = Run(tmp_path / "other")
    other.scratch = run.scratch
    other.make("ls $DETHPC_SCRATCH", run="8.1.1", environment={"DETHPC_SCRATCH": str(run.scratch)})
    other.finish(other.start())
    assert other.text().startswith("dethpc-c0ffee00-8.1.1.0-0-") and "\n" not in other.text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_what_another_user_planted_in_the_temporary_folder_is_neither_read_nor_written(run, tmp_path) -> None:
    """Names that can be foreseen, with links to what never ends and to the victim's own secret."""
    os.chmod(run.scratch, 0o1777)
    (tmp_path / "secret").write_text("of the victim")
    planted = [
        "dethpc-c0ffee00-7.1.2.0-0-tensorboard-0",
        "tensorboard-7.1.2.0-0",
        "dethpc-c0ffee00-7.1.2.0-0",
        "dethpc-0",
    ]
    plant = "".join(
        f"os.mkdir({name!r}); os.chmod({name!r}, 0o777); os.symlink('/dev/zero', {name + '/zero'!r})\n"
        f"os.symlink({str(tmp_path / 'secret')!r}, {name + '/stolen'!r})\n"
        for name in planted
    )
    attacker = {"user": 65534, "group": 65534, "extra_groups": []}
    here = os.open(run.scratch, os.O_RDONLY)  # what is above is root's alone
    try:
        code = f"import os; os.fchdir({here})\n{plant}"
        subprocess.run(["/usr/bin/python3", "-c", code], check=True, pass_fds=[here], cwd="/", **attacker)
    finally:
        os.close(here)
    storage = tmp_path / "storage"
    run.make(
        "python3 train.py",
        {
            "train.py": """\
from dethpc import core
with core.init() as context:
    context.train.report_training_metrics(1, {"loss": 0.5})
    from dethpc.core import _rendezvous
    print("sockets in", _rendezvous._socket_dir())
"""
        },
        checkpoint_storage={"type": "shared_fs", "host_path": str(storage)},
    )
    run.finish(run.start(TMPDIR=str(run.scratch)))
    assert run.end()["exit_code"] == 0, run.text()
    assert ["events" in path.name for path in storage.rglob("*") if not path.is_dir()] == [True]
    assert (
        f"sockets in {run.scratch}/dethpc-c0ffee00-7.1.2.0-0-" in run.text()
        or "sockets in /tmp/dethpc-c0ffee00-" in run.text()
    )
    assert sorted(os.listdir(run.scratch)) == sorted(planted)
    for name in planted:
        assert sorted(os.listdir(run.scratch / name)) == ["stolen", "zero"]
        shutil.rmtree(run.scratch / name)


def test_tensorboard_files_do_not_stay_on_the_node(run) -> None:
    run.make(
        "python3 train.py",
        {
            "train.py": """\
import os
from dethpc import core
with core.init(checkpoint_storage="/nowhere", tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    (context.train.get_tensorboard_path() / "events").write_text("x")
    print("kept in", os.path.dirname(context.train.get_tensorboard_path()))
"""
        },
    )
    run.finish(run.start(TMPDIR=str(run.scratch)))
    assert f"kept in {run.scratch}" in run.text()
    assert os.listdir(run.scratch) == []


def test_without_scratch_space_the_run_directory_serves(run) -> None:
    run.make("pwd")
    run.finish(run.start(DETHPC_WORKDIR_BASE="/proc", TMPDIR="/proc"))
    assert run.text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_does_not_stop_training(run, tmp_path) -> None:
    disk = tmp_path / "run" / "attempts"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        flood = (
            "import os, time\nfor i in range(20000): print('x' * 50)\nprint('flooded', flush=True)\n"
            "open(os.environ['GO'] + 'ing', 'w')\n"
            "while not os.path.exists(os.environ['GO']): print('here', flush=True); time.sleep(0.05)\n"
            "print('after', flush=True)\n"
        )
        filler = disk / "filler"
        filler.write_bytes(b"x" * 600_000)  # much more than can be on its way when it goes
        run.make(["python3", "t.py"], {"t.py": flood}, environment={"GO": str(tmp_path / "go")})
        node = run.start()
        run.wait_until((tmp_path / "going").exists)
        filler.unlink()
        run.wait_until(lambda: "here" in run.text().split("\n"))  # lines are written again
        (tmp_path / "go").touch()
        code, output = run.finish(node)
        assert code == 0
        assert "No space left on device" in output
        assert run.text().split("\n")[-1] == "after"
        assert "lines are missing here: No space left on device" in run.text()
        end = run.end()
        assert end["finished"]
        assert "log lines were lost: No space left on device" in end["message"]
    finally:
        run.kill()
        subprocess.run(["umount", str(disk)], check=True)


def test_claim_from_the_command_line(run) -> None:
    def claim(job: str) -> int:
        env = {**os.environ, "DETHPC_JOB_ID": job}
        command = [sys.executable, "-m", "dethpc.exec", "claim", str(run.dir.path)]
        return subprocess.run(command, env=env, capture_output=True).returncode

    assert [claim("1"), claim("1"), claim("2")] == [0, 0, 3]


@pytest.mark.parametrize("name", ["claim", "started.json", "end.json"])
def test_what_a_disk_altered_in_a_file_of_a_run_is_noticed(run, name) -> None:
    """A checkpoint's name with one wrong letter is JSON still, and would void all that the trial has reported."""
    claim(run.dir, "17")
    run.run("true")
    path = run.dir.claim if name == "claim" else run.attempt().path / name
    word = b"17" if name == "claim" else b"n0" if name == "started.json" else b'"finished": true'
    assert word in path.read_bytes()
    path.write_bytes(
        path.read_bytes().replace(word, word.replace(b"1", b"3").replace(b"n0", b"n8").replace(b"true", b"null"))
    )
    with pytest.raises(RunDirError, match="damaged"):
        read_json(path)
