"""Launchers as entrypoints of real node processes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dethpc.rundir.logline import read_lines

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = [sys.executable, "-m", "determined.launch.torch_distributed"]

ALL_REDUCE = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "DET_CHIEF_IP", "USE_TORCH_DISTRIBUTED"]
print("sum", total.item(), sys.argv[1:], *[os.environ.get(name) for name in names], flush=True)
if "fail" in sys.argv and dist.get_rank() == 1:
    raise ValueError("bad lr")
if "die" in sys.argv and dist.get_rank() == 1:
    os.kill(os.getpid(), 9)
if "hang" in sys.argv:
    import time; time.sleep(600)
dist.destroy_process_group()
"""


def launch(*arguments: str, env=None) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DETHPC_", "DET_"))}
    clean.update(env or {}, PYTHONPATH=str(ROOT))
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def said(run, rank: int) -> list:
    lines, _ = read_lines(run.attempt().log(rank))
    return sorted((line.rank, line.text) for line in lines if line.text.startswith("sum"))


def test_two_nodes_of_two_workers_train_together(run) -> None:
    run.make([*LAUNCH, "train.py", "--lr", "1"], {"train.py": ALL_REDUCE}, slots=4, slots_per_node=2, num_nodes=2)
    nodes = [run.start(rank, 2) for rank in range(2)]
    assert [run.finish(node)[0] for node in nodes] == [0, 0], run.text(0) + run.text(1)
    for node in range(2):
        expected = [
            (2 * node + i, f"sum 6.0 ['--lr', '1'] {2 * node + i} {i} 4 2 {node} 127.0.0.1 True") for i in range(2)
        ]
        assert said(run, node) == expected
    assert run.end()["finished"]


@pytest.mark.parametrize("slots", [0, 1])
def test_one_worker_goes_through_torchrun_too(run, slots) -> None:
    run.make([*LAUNCH, sys.executable, "train.py"], {"train.py": ALL_REDUCE}, slots=slots, slots_per_node=slots)
    assert run.finish(run.start())[0] == 0, run.text()
    assert said(run, 0) == [(0, "sum 0.0 [] 0 0 1 1 0 127.0.0.1 True")]


def test_a_failing_worker_gives_the_message_and_ends_the_others(run) -> None:
    run.make([*LAUNCH, "train.py", "fail", "hang"], {"train.py": ALL_REDUCE}, slots=2, slots_per_node=2)
    begun = time.monotonic()
    code, _ = run.finish(run.start())
    assert (code, run.end()["message"]) == (1, "exit code 1: ValueError: bad lr")
    assert time.monotonic() - begun < 60


def test_a_killed_workers_signal_is_the_exit_code(run) -> None:
    run.make([*LAUNCH, "train.py", "die", "hang"], {"train.py": ALL_REDUCE}, slots=2, slots_per_node=2)
    code, _ = run.finish(run.start())
    assert (code, run.end()["signal"]) == (137, 9)


def test_overrides_reach_torchrun(run) -> None:
    run.make([*LAUNCH, "--nproc_per_node", "1", "--", "train.py"], {"train.py": ALL_REDUCE}, slots=2, slots_per_node=2)
    assert run.finish(run.start())[0] == 0, run.text()
    assert len(said(run, 0)) == 1


def test_off_the_cluster_it_says_so() -> None:
    done = launch("dethpc.launch.torch_distributed", "train.py")
    assert done.returncode == 1
    assert "not a task of the cluster" in done.stderr


def test_what_cannot_be_launched_is_refused() -> None:
    assert "no further arguments" in launch("dethpc.launch.torch_distributed", "--trial", "a:B", "c").stderr
    assert "no script" in launch("dethpc.launch.torch_distributed").stderr
    helped = launch("dethpc.launch.torch_distributed", "-h")
    assert helped.returncode == 0
    assert "TORCH_OVERRIDES" in helped.stdout


WRAP = "determined.launch.wrap_rank"


def test_wrap_rank_prefixes_each_line() -> None:
    program = "import sys; print('a\\rb'); sys.stderr.write('c'); sys.stdout.write('\\n\\nlast')"
    done = launch(WRAP, "3", "--", sys.executable, "-c", program)
    assert done.stdout == "".join(f"[rank=3] {text}\n" for text in ("a", "b", "", "", "last"))
    assert done.stderr == "[rank=3] c\n"


def test_wrap_rank_finds_the_rank_and_passes_the_end_on() -> None:
    done = launch(WRAP, "NO_SUCH,HERE", "sh", "-c", "echo $0; exit 7", env={"HERE": "5"})
    assert (done.returncode, done.stdout) == (7, "[rank=5] sh\n")
    assert launch(WRAP, "0", "sh", "-c", "kill -9 $$").returncode == 137
    assert launch(WRAP, "0", "no-such-command").returncode == 127
    assert launch(WRAP, "NO_SUCH", "true").returncode == 2


MONITOR = """
import json, sys
from dethpc.launch import _monitor
sys.exit(_monitor.run(json.loads(sys.argv[1])))
"""


def monitor(*commands: list) -> int:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", MONITOR, json.dumps(commands)], env=env, timeout=60).returncode


def test_the_monitor_waits_for_all_and_the_first_failure_ends_all(tmp_path: Path) -> None:
    assert monitor(["true"], ["sh", "-c", f"sleep 0.5; touch {tmp_path}/done"]) == 0
    assert (tmp_path / "done").exists()
    sleeper = ["sh", "-c", f"trap '' TERM; echo $$ > {tmp_path}/pid; sleep 600 & wait; sleep 600"]
    assert monitor(sleeper, ["sh", "-c", f"while ! test -s {tmp_path}/pid; do sleep 0.1; done; exit 4"]) == 4
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
