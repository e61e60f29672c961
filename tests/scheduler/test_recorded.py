"""The part of the batch script that gives a job its environment, run by bash."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dethpc.config.sections.environment import _MODULE
from dethpc.config.sections.environment import Environment as Section
from dethpc.domain.environment import Environment
from dethpc.scheduler.slurm.environment import of_submission
from dethpc.scheduler.slurm.script import ScriptInput, render

PRINT = "import json, os, sys; print(json.dumps([sys.executable, dict(os.environ)]))"


def run(
    folder: Path,
    variables: dict[bytes, bytes],
    prologue: list[str] | None = None,
    env: dict[str, str] | None = None,
    **more: Any,
) -> subprocess.CompletedProcess[str]:
    """The script's part up to where it would claim the run; then it prints what processes get."""
    file = folder / "environment"
    file.write_bytes(Environment.of(variables).to_bytes())
    text = render(
        ScriptInput("j", folder, harness="/h.zip", environment=file, prologue=prologue or [], use_srun=False, **more)
    )
    script = folder / "script"
    script.write_text(
        text.partition("# Nobody wants this run")[0] + f"\ntype greet 2>/dev/null\n/usr/bin/python3 -c {PRINT!r}\n"
    )
    given = {"PATH": "/usr/local/bin:/usr/bin:/bin", **(env or {})}
    return subprocess.run(["bash", str(script)], env=given, capture_output=True, text=True, errors="surrogateescape")


def variables(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == 0 and not done.stderr, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])[1]
    return found


def test_values_arrive_byte_by_byte(tmp_path: Path) -> None:
    odd = {b"A": b"two\nlines\n", b"B": b"\xff'\"$(id)`id`\\", b"EMPTY": b"", b"STAR": b"(* [a]=1)", b"_x": b"="}
    found = variables(run(tmp_path, {b"PATH": b"/mine:/usr/bin", **odd}))
    assert {name: found[name.decode()].encode(errors="surrogateescape") for name in odd} == odd
    assert found["PATH"] == "/mine:/usr/bin:/usr/local/bin:/bin"


def test_the_sites_prologue_comes_first_and_what_it_adds_to_lists_stays_behind(tmp_path: Path) -> None:
    prologue = ["export PATH=/site/bin:$PATH LD_LIBRARY_PATH=/site/lib:/lib MINE=site SITE=1 TMPDIR=/site/tmp"]
    mine = {b"PATH": b"/mine:/usr/bin:/bin", b"LD_LIBRARY_PATH": b"/lib", b"MINE": b"1", b"TMPDIR": bytes(tmp_path)}
    found = variables(run(tmp_path, mine, prologue, {"TMPDIR": "/tmp"}))
    assert found["PATH"] == "/mine:/usr/bin:/bin:/site/bin:/usr/local/bin"
    assert (found["LD_LIBRARY_PATH"], found["MINE"], found["SITE"]) == ("/lib:/site/lib", "1", "1")
    assert found["TMPDIR"] == "/site/tmp", "a place of the node's"


def test_what_slurm_set_for_the_job_stays(tmp_path: Path) -> None:
    env = {"SET_BY_A_PLUGIN": "job", "HOME": "/elsewhere", "TMPDIR": "/scratch/7"}
    found = variables(run(tmp_path, {b"SET_BY_A_PLUGIN": b"mine", b"HOME": b"/home/me", b"TMPDIR": b"/tmp"}, None, env))
    assert (found["SET_BY_A_PLUGIN"], found["HOME"], found["TMPDIR"]) == ("job", "/home/me", "/scratch/7")


def test_a_tmpdir_that_the_node_lacks_is_left_out(tmp_path: Path) -> None:
    assert variables(run(tmp_path, {b"TMPDIR": b"/run/user/0/gone"}, None, {"TMPDIR": "/tmp"}))["TMPDIR"] == "/tmp"


def test_exported_functions_arrive_and_nothing_that_pretends_to_be_one_runs(tmp_path: Path) -> None:
    hostile = {
        b"BASH_FUNC_evil%%": b"() { :;}; touch " + bytes(tmp_path / "ran"),
        b"BASH_FUNC_worse%%": b"$(touch " + bytes(tmp_path / "ran") + b")",
        b"BASH_FUNC_broken%%": b"() { if",
    }
    done = run(tmp_path, {b"BASH_FUNC_greet%%": b'() {  echo "hi\n}"\n}', **hostile})
    assert done.returncode == 0 and "greet is a function" in done.stdout
    assert not (tmp_path / "ran").exists()


def test_the_interpreter_and_the_setup_of_the_configuration_come_last(tmp_path: Path) -> None:
    for name in ("shell", "wanted"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python3").symlink_to("/usr/bin/python3")
    (tmp_path / "wanted" / "pyvenv.cfg").touch()
    mine = {b"PATH": bytes(tmp_path / "shell" / "bin") + b":/usr/bin", b"CONDA_PREFIX": b"/conda"}
    lines = ['export A="it\'s"', "export B=$A", "conda() { C=1; }; conda activate x; export C"]
    section = Section.model_validate({"python": f"{tmp_path}/wanted/bin/python3", "setup": lines})
    found = variables(run(tmp_path, mine, setup=section.shell_lines()))
    assert found["PATH"].split(":")[:2] == [f"{tmp_path}/wanted/bin", f"{tmp_path}/shell/bin"]
    assert (found["A"], found["B"], found["C"], found["VIRTUAL_ENV"]) == ("it's", "it's", "1", f"{tmp_path}/wanted")
    assert "CONDA_PREFIX" not in found


def test_a_setup_that_fails_goes_no_further_and_is_told_in_the_environment_of_before(tmp_path: Path) -> None:
    broken = "export PATH=/nowhere LD_LIBRARY_PATH=/nowhere PYTHONHOME=/nowhere; set -eu; cd /\n"
    for section, why in (
        (
            Section(setup=f"{broken}modul load cuda\nexport LATER=1"),
            "environment.setup failed with exit code 127: modul load",
        ),
        (
            Section(setup="module() { false; return $?; }\nmodule load x"),
            "environment.setup failed with exit code 1: module load x",
        ),
        (Section(setup="(exit 3)\ntrue"), "environment.setup failed with exit code 3: ( exit 3 )"),
        (Section(setup="echo 'x"), "environment.setup failed"),
        (Section(setup=f"{broken}exit 0"), "environment.setup ended its shell (exit, or set -e), and with it"),
        (Section(python="/nowhere/python3"), "environment.python: /nowhere/python3 is not an interpreter on this node"),
    ):
        done = run(tmp_path, {b"PATH": b"/mine:/usr/bin"}, setup=section.shell_lines())
        assert done.returncode == 0 and why in done.stderr, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])[1]
        assert found["DETHPC_SETUP_FAILED"].startswith(why) and "LATER" not in found
        assert found["PATH"].startswith("/mine:/usr/bin:") and not found["LD_LIBRARY_PATH"]


def test_a_setup_leaves_no_options_of_the_shell_behind(tmp_path: Path) -> None:
    assert variables(run(tmp_path, {}, setup=Section(setup="set -eu\nexport A=1").shell_lines()))["A"] == "1"


@pytest.mark.skipif(
    not any(map(os.path.exists, ("/usr/share/lmod/lmod/init/bash", "/usr/share/modules/init/bash"))),
    reason="neither Lmod nor Environment Modules is installed",
)
def test_modules_are_loaded_by_setup_and_those_of_the_shell_go_along(tmp_path: Path) -> None:
    (tmp_path / "mods" / "tool").mkdir(parents=True)
    (tmp_path / "mods" / "tool" / "1.0").write_text(
        "#%Module1.0\nprepend-path PATH /tool/bin\nsetenv TOOL_HOME /tool\n"
    )
    load = [f"module use {tmp_path}/mods", "module load tool"]
    by_setup = variables(run(tmp_path, {b"PATH": b"/usr/bin:/bin"}, setup=Section(setup=load).shell_lines()))
    shell = ["bash", "--noprofile", "-lc", "\n".join([*_MODULE, *load, "env -0"])]
    given = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "USER": "me"}
    entries = subprocess.run(shell, env=given, capture_output=True, check=True).stdout.split(b"\0")[:-1]
    recorded = dict(entry.partition(b"=")[::2] for entry in entries)
    more = ["module unload tool; module load tool; module list 2>&1 | grep -q tool/1.0"]
    of_shell = variables(run(tmp_path, recorded, setup=Section(setup=more).shell_lines()))
    for found in (by_setup, of_shell):
        assert (found["TOOL_HOME"], found["LOADEDMODULES"]) == ("/tool", "tool/1.0")
        assert found["PATH"].split(":")[0] == "/tool/bin" and f"{tmp_path}/mods" in found["MODULEPATH"].split(":")

    done = run(tmp_path, {}, setup=Section(setup=[load[0], "module load nosuch"]).shell_lines())
    assert "environment.setup failed with exit code 1: module load nosuch\n" in done.stderr


def test_a_file_that_is_gone_ends_the_job_and_says_so(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(
        render(ScriptInput("j", tmp_path, harness="/h.zip", environment=tmp_path / "gone", use_srun=False))
    )
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True)
    assert done.returncode == 1 and f"the environment of the experiment cannot be read: {tmp_path}/gone" in done.stderr


@pytest.mark.parametrize(
    "data", [b"", b"garbage\xff\n", b"A=1\0B=2\0", b'{"python": "/x/py', b'{"source": "shell"}\0A=1\0PATH=/cut/o']
)
def test_a_damaged_file_ends_the_job_and_no_process_starts_in_another_environment(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "environment").write_bytes(data)
    script = tmp_path / "script"
    text = render(ScriptInput("j", tmp_path, harness="/h.zip", environment=tmp_path / "environment", use_srun=False))
    script.write_text(text.partition("# Nobody wants this run")[0] + "\necho trains\n")
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True)
    assert done.returncode == 1 and "trains" not in done.stdout
    assert f"the environment of the experiment cannot be read: {tmp_path}/environment" in done.stderr


def test_a_job_that_takes_another_run_keeps_its_environment(tmp_path: Path) -> None:
    first = variables(run(tmp_path, {b"A": b"1"}, ["export B=${B-}b"], follow_within=60.0))
    again = variables(run(tmp_path, {b"A": b"2"}, ["export B=${B-}b"], first, follow_within=60.0))
    assert (again["A"], again["B"]) == ("1", "b")


def test_a_job_finds_slurms_commands_wherever_they_are(tmp_path: Path) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.touch(0o755)
    known = {"PATH": f"{tmp_path}:/secret", "SLURM_CONF": "/etc/s", "OTHER": "1"}
    assert of_submission({"PATH": "/usr/bin"}, known) == {"PATH": f"/usr/bin:{tmp_path}", "SLURM_CONF": "/etc/s"}
    assert of_submission({"PATH": str(tmp_path)}, known)["PATH"] == str(tmp_path)
