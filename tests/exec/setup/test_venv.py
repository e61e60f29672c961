"""Hooks and jobs install into an environment of the experiment's own, and never into the one that serves det."""

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Iterator

import pytest

from dethpc.exec import pip_shim
from dethpc.master.durable.harness import build
from dethpc.rundir.files import read_json
from tests.exec.fixtures import Run
from tests.waiting import LONG_ENOUGH, wait_until

ANSWER = "import answer, sys; print(answer.TEXT)"
"""Says which of the packages named ``answer`` is found."""


def wheel(folder: Path, version: str = "1.0", text: str = "from the venv") -> Path:
    """A package ``answer`` with a command ``answer``, which pip installs without any index."""
    path = folder / f"answer-{version}-py3-none-any.whl"
    info = f"answer-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("answer.py", f"TEXT = {text!r}\ndef main(): print(TEXT)\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: answer\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", "[console_scripts]\nanswer = answer:main\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with pip, as users have one that serves det."""
    path = tmp_path_factory.mktemp("base") / "a venv"
    subprocess.run([sys.executable, "-m", "venv", path], check=True)
    return path


@pytest.fixture
def serves(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That it is first on PATH in jobs, as the master has it."""
    monkeypatch.setenv("PATH", f"{base}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("VIRTUAL_ENV", str(base))
    return base


@pytest.fixture
def runs(tmp_path: Path, serves: Path) -> Iterator["Runs"]:
    with contextlib.ExitStack() as stack:
        yield Runs(tmp_path, serves, stack)


class Runs:
    """Runs of one experiment, each in a directory of its own; ``folder`` is where the experiment's environment is."""

    def __init__(self, tmp: Path, serves: Path, stack: contextlib.ExitStack) -> None:
        self.tmp, self.folder, self.serves, self._stack = tmp, tmp / "venv", serves, stack

    def new(self, n: int, hook: str, entrypoint: str) -> Run:
        run = Run(self.tmp / f"run {n}")
        self._stack.callback(run.kill)
        run.make(entrypoint, {"startup-hook.sh": f"set -e\n{hook}\n"}, run=f"7.{n}.1", venv=str(self.folder))
        return run

    def train(self, n: int, hook: str, entrypoint: str = f'python3 -c "{ANSWER}"') -> Run:
        """One that is over."""
        run = self.new(n, hook, entrypoint)
        run.finish(run.start())
        return run

    def new_at_need(self, n: int, hook: str, entrypoint: str, **files: str) -> Run:
        run = Run(self.tmp / f"run {n}")
        self._stack.callback(run.kill)
        shape = {"run": f"7.{n}.1", "venv_at_need": str(self.folder), "det_prefix": str(self.serves)}
        run.make(entrypoint, {"startup-hook.sh": f"{hook}\n", **files}, **shape)
        return run

    def train_at_need(self, n: int, hook: str, entrypoint: str, **files: str) -> Run:
        """One that is over, of an experiment that asks for no environment."""
        run = self.new_at_need(n, hook, entrypoint, **files)
        run.finish(run.start())
        return run

    def left(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


def test_pip_is_kept_out_of_the_interpreter_that_serves_det(run: Run, serves: Path, tmp_path: Path) -> None:
    """Where nothing can be asked for: in the entrypoint, and in hooks of runs that an earlier release submitted."""
    package = wheel(tmp_path)
    hook = f"""
        ! pip install --no-index {package} || exit 11
        ! python3 -m pip install --no-index {package} || exit 12
        ! pip3 -q uninstall -y pip || exit 13
        test -z "$VIRTUAL_ENV" || exit 14
        pip list >/dev/null && pip install --no-index --target there {package} || exit 15
        PYTHONPATH=there python3 -c "{ANSWER}"
    """
    entrypoint = f"! python3 -c 'import answer' && ! pip install --no-index {package}"
    code, end = run.run(entrypoint, {"startup-hook.sh": hook}, det_prefix=str(serves))
    assert code == 0, run.text()
    assert run.text().count(f"pip is kept out of {serves}: it serves det") == 4
    assert "in startup-hook.sh, for which the experiment" in run.text() and "\nfrom the venv" in run.text()
    assert not list(serves.rglob("answer*"))


@pytest.fixture
def has_answer(serves: Path, tmp_path: Path) -> Iterator[Path]:
    """The environment that serves det has the package already."""
    pip = serves / "bin" / "pip"
    subprocess.run([pip, "install", "-q", "--no-index", wheel(tmp_path, "0.5", "from the base")], check=True)
    yield serves
    subprocess.run([pip, "uninstall", "-q", "-y", "answer"], check=True)


def test_pip_that_changes_nothing_passes(runs: Runs, has_answer: Path) -> None:
    hook = """
        pip install answer
        pip3 install -q 'answer>=0.1'
        python3 -m pip install --no-index -r requirements.txt
        pip install --user answer
        pip uninstall -y nothing-like-it
        pip install --no-index --find-links . --upgrade answer
        echo went on
    """
    run = runs.train_at_need(1, hook, "pip install answer && answer", **{"requirements.txt": "answer\n"})
    assert run.end()["exit_code"] == 0, run.text()
    assert "went on" in run.text() and "from the base" in run.text() and "of its own" not in run.text()
    assert not runs.folder.exists()


BACKEND = """
import shutil
def build_editable(folder, *settings):
    return shutil.copy("{wheel}", folder).rpartition("/")[2]
"""


@pytest.mark.parametrize(
    "line",
    [
        "python3 -m pip install --no-index --find-links '{tmp}' -r requirements.txt",
        "pip install --user --no-index '{wheel}' || true",
        "sh -c 'pip3 -q install --no-index \"{wheel}\"' | cat",
        "pip install --no-index -e .",
    ],
)
def test_pip_that_would_install_makes_the_experiments_own_environment(runs: Runs, serves: Path, line: str) -> None:
    """The hook begins anew in it, in a context directory as it was."""
    package = wheel(runs.tmp)
    files = {
        "requirements.txt": "answer\n",
        "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
        "backend.py": BACKEND.format(wheel=package),
    }
    hook = f"mkdir made\nexport KEPT=1\n{line.format(tmp=runs.tmp, wheel=package)}\nexport PATH=$PATH:/added"
    entrypoint = f'test $KEPT = 1 && answer && echo "$PATH" && python3 -c "{ANSWER}"'
    first = runs.train_at_need(1, hook, entrypoint, **files)
    assert first.end()["exit_code"] == 0, first.text()
    assert "would install answer 1.0 into" in first.text() and first.text().count("from the venv") == 2
    assert f"\n{runs.folder}/7.1.1.0-0/bin:" in first.text() and ":/added\n" in first.text()
    assert runs.left() == ["7.1.1.0-0", "lock", "ready.json"] and not list(serves.rglob("answer*"))
    second = runs.train_at_need(2, hook, entrypoint, **files)
    assert second.text().count("nothing is installed") == 1 and second.text().count("from the venv") == 2
    assert "begins anew" not in second.text()


def test_it_sees_what_serves_det_and_an_upgrade_shadows_that(runs: Runs, has_answer: Path) -> None:
    hook = f"answer\npip install --no-index --upgrade {wheel(runs.tmp)}"
    run = runs.train_at_need(1, hook, "answer")
    assert run.text().count("from the base") == 2 and run.text().endswith("from the venv"), run.text()
    said = subprocess.run([has_answer / "bin" / "answer"], capture_output=True, check=True).stdout
    assert said == b"from the base\n"


def test_of_runs_that_need_it_together_one_makes_it(runs: Runs) -> None:
    hook = f"pip install --no-index {wheel(runs.tmp)}"
    started = [runs.new_at_need(n, hook, "answer") for n in range(1, 6)]
    nodes = [run.start() for run in started]
    for run, node in zip(started, nodes):
        assert run.finish(node)[0] == 0, run.text()
        assert "from the venv" in run.text()
    assert sum("making the experiment's Python environment" in run.text() for run in started) == 1
    assert len(runs.left()) == 3


def test_a_hook_whose_pip_fails_is_told_pips_own_words(runs: Runs) -> None:
    run = runs.train_at_need(1, "pip install --no-index no-such-package", "echo trained")
    assert run.end()["message"].startswith("startup-hook.sh line 1 failed with exit code 1: pip install"), run.end()
    assert "No matching distribution found for no-such-package" in run.end()["message"]
    assert not runs.folder.exists()


def test_a_hook_that_fails_in_the_experiments_own_environment_leaves_none(runs: Runs) -> None:
    install = f"pip install --no-index {wheel(runs.tmp)}"
    run = runs.train_at_need(1, f"{install}\nexit 3", "echo trained")
    assert run.end()["message"].startswith("startup-hook.sh exited with 3") and "trained" not in run.printed()
    assert runs.left() == ["lock"]
    again = runs.train_at_need(2, install, "answer")
    assert "from the venv" in again.text() and "begins anew" not in again.text()


def test_a_pip_of_before_dry_runs_means_an_environment_of_its_own(runs: Runs, serves: Path) -> None:
    (metadata,) = serves.glob("lib/python*/site-packages/pip-*.dist-info/METADATA")
    text = metadata.read_text()
    metadata.write_text(re.sub(r"^Version: .*", "Version: 21.2.4", text, flags=re.MULTILINE))
    try:
        run = runs.train_at_need(1, f"pip install --no-index {wheel(runs.tmp)}", "answer")
    finally:
        metadata.write_text(text)
    assert "would install what pip 21.2.4 cannot tell beforehand" in run.text() and "from the venv" in run.text()


def test_the_first_run_fills_the_experiments_environment_and_all_use_it(runs: Runs, serves: Path) -> None:
    install = f"pip install --no-index {wheel(runs.tmp)}"
    first = runs.train(1, install)
    assert "from the venv" in first.text() and "making the experiment's Python environment" in first.text()
    assert runs.left() == ["7.1.1.0-0", "lock", "ready.json"]
    second = runs.train(2, f"{install} --force-reinstall\npip install --no-index nothing-like-it", "answer")
    assert "from the venv" in second.text() and second.text().count("nothing is installed") == 2
    third = runs.train(3, "", f"{install} --force-reinstall")
    assert third.end()["exit_code"] == 1 and "Install in startup-hook.sh" in third.text()
    assert runs.left() == ["7.1.1.0-0", "lock", "ready.json"] and not list(serves.rglob("answer*"))


def test_the_experiments_environment_sees_what_is_below_it_and_shadows_it(runs: Runs, serves: Path) -> None:
    """The parent is a virtual environment itself, and has packages that were installed for editing."""
    (packages,) = serves.glob("lib/python*/site-packages")
    edited = runs.tmp / "edited"
    edited.mkdir()
    (edited / "in_editing.py").write_text("")
    (packages / "edited.pth").write_text(f"{edited}\n")
    subprocess.run(
        [serves / "bin" / "pip", "install", "-q", "--no-index", wheel(runs.tmp, "0.5", "from the base")], check=True
    )
    try:
        run = runs.train(
            1, f'answer\npython3 -c "import in_editing"\npip install --no-index {wheel(runs.tmp)}', "answer"
        )
        assert run.text().index("from the base") < run.text().index("from the venv"), run.text()
        assert subprocess.run([serves / "bin" / "answer"], capture_output=True, check=True).stdout == b"from the base\n"
    finally:
        subprocess.run([serves / "bin" / "pip", "uninstall", "-q", "-y", "answer"], check=True)


def test_what_a_failed_or_killed_run_leaves_is_made_anew(runs: Runs) -> None:
    install = f"pip install --no-index {wheel(runs.tmp)}"
    assert runs.train(1, f"{install}\nexit 3").end()["message"] == "startup-hook.sh exited with 3"
    assert runs.left() == ["lock"]
    killed = runs.new(2, f"{install}\ntouch $DETHPC_JOB_ID.filled; sleep 1000", "")
    node = killed.start()
    wait_until(lambda: list(killed.scratch.glob("**/17.filled")))
    node.send_signal(signal.SIGKILL)
    killed.kill()
    assert runs.left() == ["7.2.1.0-0", "lock"]
    assert "from the venv" in runs.train(3, install).text()
    assert runs.left() == ["7.3.1.0-0", "lock", "ready.json"]


def test_of_runs_that_start_together_one_fills_and_the_others_wait(runs: Runs) -> None:
    go = runs.tmp / "go"
    hook = f"pip install --no-index {wheel(runs.tmp)}\nwhile ! test -e '{go}'; do sleep 0.1; done"
    started = [runs.new(n, hook, "answer") for n in (1, 2, 3)]
    nodes = [run.start() for run in started]
    wait_until(lambda: sum("waiting for another run to fill" in said(run) for run in started) == 2)
    go.touch()
    for run, node in zip(started, nodes):
        assert run.finish(node)[0] == 0, run.text()
    assert sum("making the experiment's Python environment" in run.text() for run in started) == 1
    assert len(runs.left()) == 3


def said(run: Run) -> str:
    return run.text() if run.attempt().log(0).exists() else ""


def test_one_that_was_given_up_and_ends_after_all_takes_nothing_over(runs: Runs) -> None:
    """Its lock may be gone with its node: what is ready stays."""
    begun, go = runs.tmp / "begun", runs.tmp / "go"
    slow = runs.new(1, f"touch '{begun}'\nwhile ! test -e '{go}'; do sleep 0.1; done\necho the first is done", "answer")
    node = slow.start()
    wait_until(begun.exists)
    os.unlink(runs.folder / "lock")
    runs.train(2, f"pip install --no-index {wheel(runs.tmp)}")
    ready = read_json(runs.folder / "ready.json")
    go.touch()
    slow.finish(node)
    assert "the first is done" in slow.text() and "from the venv" in slow.text()
    assert read_json(runs.folder / "ready.json") == ready
    assert ready is not None and runs.left() == [ready["venv"], "lock", "ready.json"]


def test_a_job_without_rules_has_pip_as_it_is(base: Path) -> None:
    """Nor with rules for another environment."""
    env = {**os.environ}
    pip_shim.keep_out(env, "/somewhere/else", 1, "no")
    assert json.loads(env[pip_shim.RULES]) == {"/somewhere/else": [1, "no", ""]}
    said = subprocess.run([base / "bin" / "pip", "uninstall", "-y", "nothing"], env=env, capture_output=True, text=True)
    assert said.returncode == 0 and "Skipping nothing" in said.stderr


def test_of_two_pips_in_one_environment_the_later_waits_for_the_other(base: Path) -> None:
    """As the hooks of two trials on one node run them, whose environment is neither det's nor the experiment's own."""
    env = {**os.environ}
    pip_shim.keep_out(env, "/somewhere/else", 1, "no")
    pip = [base / "bin" / "pip", "uninstall", "-y", "nothing"]
    with open(base / ".dethpc-pip.lock", "w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        second = subprocess.Popen(pip, env=env, stderr=subprocess.PIPE, text=True)
        try:
            assert second.stderr is not None and "waiting for another pip" in second.stderr.readline()
            assert second.poll() is None
            fcntl.lockf(held, fcntl.LOCK_UN)
            assert "Skipping nothing" in second.communicate(timeout=LONG_ENOUGH)[1] and second.returncode == 0
        finally:
            second.kill()


def test_the_guard_stands_in_the_bundle_that_jobs_have(base: Path, tmp_path: Path) -> None:
    bundle = build(tmp_path)
    code = "import json, sys; from dethpc.exec import pip_shim; env = {}\n"
    code += "pip_shim.keep_out(env, sys.argv[1], 3, 'no'); print(json.dumps(env))"
    said = subprocess.run(
        [sys.executable, "-c", code, base], env={"PYTHONPATH": str(bundle)}, cwd="/", capture_output=True, check=True
    )
    env = json.loads(said.stdout)
    assert env["PYTHONPATH"].startswith(str(bundle))
    install = [base / "bin" / "pip", "install", "--no-index", wheel(tmp_path)]
    asked = subprocess.run(install, env=env, capture_output=True, text=True)
    assert (asked.returncode, asked.stderr) == (3, "no\n")
    assert subprocess.run([base / "bin" / "pip", "--version"], env=env, stdout=subprocess.DEVNULL).returncode == 0


def test_where_there_is_no_pip_python_says_so_itself(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    env = {**os.environ}
    pip_shim.keep_out(env, "/somewhere/else", 1, "no")
    said = subprocess.run([tmp_path / "bare/bin/python3", "-m", "pip", "list"], env=env, capture_output=True, text=True)
    assert said.returncode == 1 and "No module named 'pip'" in said.stderr
