"""The name ``determined`` is ``dethpc``: the same objects, however they are reached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(script: str, *args: str, path: str = str(ROOT), python: str = sys.executable, cwd: Path = ROOT) -> str:
    """Run a script in a fresh interpreter, with the alias untouched by this process's imports."""
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([python, *args, "-c", script], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_alias_stays_small() -> None:
    assert len((ROOT / "determined" / "__init__.py").read_text().splitlines()) < 60


@pytest.mark.parametrize("first", ["determined", "dethpc"])
def test_modules_are_the_same_objects_under_both_names(first: str) -> None:
    second = {"determined": "dethpc", "dethpc": "determined"}[first]
    run(
        f"import {first}.rundir.layout as a, {second}.rundir.layout as b, determined, dethpc\n"
        "assert a is b and determined is dethpc and determined.rundir is dethpc.rundir\n"
        "assert a.RunDir is b.RunDir and a.__name__ == a.__spec__.name == 'dethpc.rundir.layout'\n"
        "from determined import errors\n"
        "assert determined.InvalidHP is dethpc.errors.InvalidHP is errors.InvalidHP\n"
    )


def test_the_core_api_is_the_same_under_both_names() -> None:
    run(
        "import determined as det, dethpc\n"
        "assert det.core is dethpc.core and det.core.init is dethpc.core.init\n"
        "from determined.core import DistributedContext\n"
        "assert DistributedContext is dethpc.core.DistributedContext\n"
        "assert det.get_cluster_info() is None\n"
    )


def test_a_missing_module_is_reported_under_the_name_that_was_asked_for() -> None:
    out = run(
        "import determined\n"
        "try:\n    import determined.nothing.here\n"
        "except ModuleNotFoundError as error:\n    print(error.name)\n"
    )
    assert out == "determined.nothing"


def test_a_module_runs_by_its_alias(tmp_path: Path) -> None:
    package = tmp_path / "dethpc"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "hello.py").write_text("import sys\nprint(__name__, __spec__.name, sys.argv[1:])\n")
    (tmp_path / "determined").symlink_to(ROOT / "determined")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "determined.hello", "x", "y"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "__main__ determined.hello ['x', 'y']"


@pytest.mark.skipif(not (ROOT / "launchers" / "torch_distributed.py").exists(), reason="no torch_distributed launcher")
@pytest.mark.parametrize("name", ["determined", "dethpc"])
def test_a_launcher_runs_by_both_names_and_from_the_bundle(
    name: str, bundle: Path, node_python: str, tmp_path: Path
) -> None:
    for path in (str(ROOT), str(bundle)):
        done = subprocess.run(
            [node_python, "-m", f"{name}.launch.torch_distributed", "-h"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 and "usage" in done.stdout.lower(), done.stderr


def test_objects_pickle_across_the_two_names() -> None:
    run(
        "import pickle, determined.domain.states as states\n"
        "assert pickle.loads(pickle.dumps(states.State.ACTIVE)) is states.State.ACTIVE\n"
        "old = b'cdetermined.domain.states\\nState\\n.'\n"
        "assert pickle.loads(old) is states.State\n"
    )


def test_reload_keeps_one_module_under_both_names() -> None:
    run(
        "import importlib, determined.errors, dethpc.errors\n"
        "again = importlib.reload(determined.errors)\n"
        "assert again is dethpc.errors is determined.errors\n"
        "assert importlib.reload(determined) is dethpc\n"
    )


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_child_processes_see_the_alias(method: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import multiprocessing, sys\nimport determined as det\nfrom determined.domain.states import State\n"
        "def work(state, out):\n    import dethpc\n    out.put((det is dethpc, state is State.ACTIVE, type(state).__module__))\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context(sys.argv[1])\n    out = context.Queue()\n"
        "    child = context.Process(target=work, args=(State.ACTIVE, out))\n    child.start()\n"
        "    assert out.get(timeout=600) == (True, True, 'dethpc.domain.states')\n    child.join()\n"
        "    sys.exit(child.exitcode)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script), method], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_loads_next_to_nothing() -> None:
    before = set(run("import sys; print(*sorted(sys.modules))", "-I", "-S").split())
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import determined; print(*sorted(sys.modules))"
    loaded = set(run(script, "-I", "-S").split()) - before
    assert {name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names} == {"dethpc", "determined"}
