"""``startup-hook.sh`` is sourced under ``set -e``, and the entrypoint begins where it leaves off."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dethpc.exec.setup.shell_state import Files
from tests.exec.fixtures import Run

SEES = """
import json, os, resource, sys
print(json.dumps({
    "env": dict(os.environ), "cwd": os.getcwd(), "umask": oct(os.umask(0)), "argv": sys.argv[1:],
    "files": resource.getrlimit(resource.RLIMIT_NOFILE), "core": resource.getrlimit(resource.RLIMIT_CORE),
}))
"""


def seen(run: Run, hook: str, entrypoint: Any = ("python3", "sees.py")) -> dict[str, Any]:
    """What an entrypoint sees after ``hook``."""
    code, end = run.run(
        entrypoint if isinstance(entrypoint, str) else list(entrypoint),
        {"startup-hook.sh": hook, "sees.py": SEES, "extra/extramod.py": "X = 1\n"},
    )
    assert code == 0, (end, run.text())
    return json.loads(run.printed().splitlines()[-1])


def test_a_failing_line_in_the_middle_fails_the_run_and_is_named(run: Run) -> None:
    hook = "export HOOKVAR=1\n\nls /nonexistent/requirements.txt\necho hook end\n"
    code, end = run.run("echo trained", {"startup-hook.sh": hook})
    assert (code, end["phase"], end["exit_code"]) == (2, "hook", 2)
    failed = "startup-hook.sh line 3 failed with exit code 2: ls /nonexistent/requirements.txt"
    assert end["message"].startswith(f"{failed}: ls: cannot access"), end["message"]
    assert "hook end" not in run.text() and "trained" not in run.text()


@pytest.mark.parametrize(
    ("hook", "line", "code"),
    [
        ("prepare() {\n  false\n}\n\nprepare\n", 2, 1),
        ("echo\nsource ./extra.sh\n", 2, 4),
        ("set -u\necho\nx=$(exit 7)\n", 3, 7),
        ("(cd /tmp; exit 5)\n", 1, 5),
        ("true | false\n", 1, 1),
        ("set -o pipefail\nset -C\numask 0\nfalse | true\n", 4, 1),
        ("cd extra\nfor i in 1 2; do\n  test $i = 1\ndone\n", 3, 1),
        ("no-such-command --x\n", 1, 127),
        ("#!/bin/sh\nexport TOKEN=hush; false\n", 2, 1),
    ],
)
def test_the_line_that_failed_is_that_of_the_hook(run: Run, hook: str, line: int, code: int) -> None:
    files = {"startup-hook.sh": hook, "extra.sh": "true\n\n(exit 4)\n", "extra/x": ""}
    exited, end = run.run("echo trained", files)
    assert exited == code
    assert end["message"].startswith(f"startup-hook.sh line {line} failed with exit code {code}: "), end["message"]
    assert "hush" not in end["message"] and "trained" not in run.text()


@pytest.mark.parametrize(
    "hook",
    [
        "false || true",
        "if false; then echo; fi",
        "! true\n:",
        "x=$(false) || echo",
        "set +e\nfalse",
        "set +e\nfalse\nset -e",
        "(exit 3) &\nwait || true",
        "return 0\nfalse",
        "trap 'echo cleared' EXIT",
        "set -u; set -o posix; set -f",
    ],
)
def test_what_a_shell_under_set_e_goes_on_after_fails_nothing(run: Run, hook: str) -> None:
    assert run.run("echo trained", {"startup-hook.sh": hook + "\n"})[0] == 0, run.text()
    assert run.printed().splitlines()[-1] == "trained"


@pytest.mark.parametrize(
    ("hook", "code"),
    [("exit 3\necho", 3), ("return 4\necho", 4), ("trap 'echo over' EXIT\nexit 5", 5), ("test -e there && echo", 1)],
)
def test_a_hook_that_ends_with_a_failure_fails_the_run(run: Run, hook: str, code: int) -> None:
    exited, end = run.run("echo trained", {"startup-hook.sh": f"echo\n{hook}\n"})
    assert (exited, end["message"]) == (code, f"startup-hook.sh exited with {code}")


@pytest.mark.parametrize("entrypoint", ["python3 sees.py", ["python3", "sees.py"], "sbatch job.sh"])
def test_what_the_hook_exports_reaches_every_kind_of_entrypoint(run: Run, entrypoint: object) -> None:
    files = {
        "startup-hook.sh": "export HOOKVAR='a b'\nunset GONE\n",
        "sees.py": SEES,
        "job.sh": "#!/bin/bash\npython3 sees.py\n",
    }
    assert run.run(entrypoint, files, environment={"GONE": "1"})[0] == 0, run.text()
    env = json.loads(run.printed())["env"]
    assert env["HOOKVAR"] == "a b" and "GONE" not in env


def test_a_trial_class_sees_what_the_hook_exports(run: Run) -> None:
    model = "import os, sys\nprint('HOOKVAR', os.environ['HOOKVAR'], os.path.basename(os.getcwd()))\nsys.exit(0)\n"
    files = {"startup-hook.sh": "export HOOKVAR=1\ncd src\n", "src/model_def.py": model}
    assert run.run("model_def:Trial", files)[0] == 0, run.text()
    assert "HOOKVAR 1 src" in run.printed()


def test_the_entrypoint_begins_where_the_hook_left_off(run: Run) -> None:
    hook = """
        export PYTHONPATH=$PYTHONPATH:$PWD/extra PATH=$PWD/extra:$PATH ODD=$'two\\nlines \\xff'
        greet() { echo hello from a function; }
        export -f greet
        cd extra
        umask 027
        ulimit -n 200
        not_exported=1
        set -a
        dethpc_like=2
        FROM_ALLEXPORT=3
    """
    state = seen(run, hook, ["bash", "-c", "greet && python3 -c 'import extramod' && exec python3 ../sees.py"])
    env = state["env"]
    assert "hello from a function" in run.printed()
    assert str(state["cwd"]).endswith("/work/extra") and env["PWD"] == state["cwd"]
    assert (state["umask"], state["files"]) == ("0o27", [200, 200])
    assert env["PATH"].startswith(state["cwd"]) and env["ODD"].encode("utf-8", "surrogateescape") == b"two\nlines \xff"
    assert env["FROM_ALLEXPORT"] == "3" and not {"not_exported", "dethpc_like", "SHELLOPTS"} & set(env)


def test_limits_and_umask_that_the_hook_leaves_alone_are_those_of_a_run_without_it(run: Run, tmp_path: Path) -> None:
    with_hook = seen(run, "ulimit -S -c 0\n")
    other = Run(tmp_path / "other")
    try:
        without = seen_without(other)
    finally:
        other.kill()
    assert with_hook["umask"] == without["umask"] and with_hook["files"] == without["files"]
    assert with_hook["core"] == [0, without["core"][1]]
    names = set(with_hook["env"]) ^ set(without["env"])
    assert names <= {"PWD", "OLDPWD"}, names


def seen_without(run: Run) -> dict[str, Any]:
    assert run.run(["python3", "sees.py"], {"sees.py": SEES})[0] == 0
    return json.loads(run.printed())


def test_a_virtual_environment_that_the_hook_activates_is_the_entrypoints(run: Run) -> None:
    hook = "python3 -m venv --without-pip mine\nsource mine/bin/activate\n"
    state = seen(run, hook)
    assert state["env"]["VIRTUAL_ENV"].endswith("/work/mine") and state["env"]["PATH"].startswith(
        state["env"]["VIRTUAL_ENV"]
    )


def test_module_and_conda_of_the_hook_reach_the_entrypoint(run: Run) -> None:
    """As their shell functions do it: they evaluate what a program prints."""
    hook = """
        printf 'echo "export LOADEDMODULES=$2 CUDA_HOME=/sw/cuda"' >lmod
        module() { eval "$(sh ./lmod x "$@")"; return $?; }
        conda() { case $1 in activate) export CONDA_PREFIX=/envs/$2 PATH=/envs/$2/bin:$PATH ;; *) return 1 ;; esac; }
        module load cuda
        conda activate mine
    """
    env = seen(run, hook)["env"]
    assert (env["LOADEDMODULES"], env["CUDA_HOME"], env["CONDA_PREFIX"]) == ("load", "/sw/cuda", "/envs/mine")
    assert env["PATH"].startswith("/envs/mine/bin:")


def test_a_module_that_cannot_be_loaded_fails_the_run_at_its_line(run: Run) -> None:
    hook = "module() { false; return 3; }\n\nmodule load nothing\n"
    _, end = run.run("echo trained", {"startup-hook.sh": hook})
    assert end["message"].startswith("startup-hook.sh line ") and "trained" not in run.text()


def test_a_hook_that_sets_pythonpath_anew_still_has_dethpc(run: Run) -> None:
    env = seen(
        run, "export PYTHONPATH=$PWD/extra\n", "python3 -c 'import extramod, determined' && exec python3 sees.py"
    )["env"]
    assert env["PYTHONPATH"].endswith("/work/extra")


def test_exit_0_in_the_middle_ends_the_hook_alone(run: Run) -> None:
    env = seen(run, "export BEFORE=1\nif true; then\n  exit 0\nfi\nexport AFTER=1\n")["env"]
    assert env["BEFORE"] == "1" and "AFTER" not in env


def test_a_trap_for_exit_does_not_run_when_the_hook_goes_well(run: Run) -> None:
    """As in Determined, whose shell becomes the entrypoint: what the trap would end stays for the training."""
    env = seen(run, "touch kept\ntrap 'rm kept' EXIT\nexport HOOKVAR=1\n", "test -e kept && exec python3 sees.py")[
        "env"
    ]
    assert env["HOOKVAR"] == "1"


@pytest.mark.parametrize("end", ["trap 'echo over' EXIT\nexit 0", "exec true"])
def test_a_hook_that_ends_before_its_state_is_read_says_that_exports_are_lost(run: Run, end: str) -> None:
    env = seen(run, f"export HOOKVAR=1\n{end}\n")["env"]
    assert "HOOKVAR" not in env and "what it exported does not reach the entrypoint" in run.text()


def test_a_hook_that_reads_its_input_finds_none(run: Run) -> None:
    assert "read nothing" in seen_text(run, "read -r line || echo read nothing\ncat\n")


def seen_text(run: Run, hook: str) -> str:
    seen(run, hook)
    return run.text()


def test_where_there_is_no_bash_sh_sources_the_hook(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "ls", "env", "python3"):
        (folder / name).symlink_to(str(shutil.which(name)) if name != "python3" else sys.executable)
    run.make(
        ["python3", "sees.py"],
        {"startup-hook.sh": "export HOOKVAR=1\ncd extra\n", "sees.py": SEES, "extra/sees.py": SEES},
    )
    assert run.finish(run.start(PATH=str(folder)))[0] == 0, run.text()
    state = json.loads(run.printed())
    assert state["env"]["HOOKVAR"] == "1" and state["cwd"].endswith("/extra")
    run.make("echo trained", {"startup-hook.sh": "ls /nonexistent\n"})
    assert run.finish(run.start(PATH=str(folder), k=1))[0] == 2
    assert run.end(1)["message"].startswith("startup-hook.sh exited with 2")


def test_every_node_begins_where_its_own_hook_left_off(run: Run) -> None:
    hook = "export MINE=of-$DET_AGENT_ID\ncd extra\n"
    run.make("echo $MINE in $(basename $PWD)", {"startup-hook.sh": hook, "extra/x": ""}, num_nodes=2)
    assert [run.finish(node)[0] for node in [run.start(rank, 2) for rank in (0, 1)]] == [0, 0]
    assert [run.printed(rank) for rank in (0, 1)] == ["of-n0 in extra", "of-n1 in extra"]


def test_what_a_hook_exports_is_on_no_disk_while_the_entrypoint_runs(run: Run) -> None:
    hook = "umask 0\nexport API_KEY=hush-hush\n"
    state = seen(run, hook, "! grep -rl hush-hush .. --include='hook-*' && exec python3 sees.py")
    assert state["env"]["API_KEY"] == "hush-hush"


def test_the_shells_state_is_for_its_owner_alone(tmp_path: Path) -> None:
    """While the hook runs, whatever umask it sets."""
    old = os.umask(0)
    try:
        files = Files.make(str(tmp_path))
        (tmp_path / "startup-hook.sh").write_text("umask 0\nexport API_KEY=hush\n")
        subprocess.run(["bash", "-c", files.program("bash", "startup-hook.sh")], cwd=tmp_path, check=True)
    finally:
        os.umask(old)
    assert b"API_KEY=hush" in Path(files.state).read_bytes()
    assert [os.stat(path).st_mode & 0o777 for path in files] == [0o600, 0o600]


def test_a_state_that_was_cut_short_is_none(tmp_path: Path) -> None:
    files = Files.make(str(tmp_path))
    (tmp_path / "startup-hook.sh").write_text("export X=1\n")
    subprocess.run(["bash", "-c", files.program("bash", "startup-hook.sh")], cwd=tmp_path, check=True)
    whole = Path(files.state).read_bytes()
    assert files.read("bash", {}) is not None
    Path(files.state).write_bytes(whole[: len(whole) // 2])
    assert files.read("bash", {}) is None
