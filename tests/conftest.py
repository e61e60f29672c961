"""What every room's tests share. Rooms keep their own fixtures beside their tests."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]

MARK = f"STARTED_BY_TESTS_OF={os.getpid()}-{secrets.token_hex(8)}"
"""In the environment of what the tests start; no other tests have it, those of an earlier process with this pid included. Daemons
of Slurm do not inherit it: they are known by their folder."""

OF_OURS = re.compile(r"dethpc|postgres|mariadb|train\.py")
"""In the command line of what must not live on. Others, such as the daemon of an MPI that a test imports, end with the tests."""

# Jobs run the python3 that the shell finds: that of the tests, activated or not.
if os.environ.get("PATH", "").split(os.pathsep)[0] != str(Path(sys.executable).parent):
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"

# Time decides no test: a busy machine takes ten times as long for an example.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
# scripts/quick: a property that asks for a number of its own has that many of a hundred of it (tests/example_counts.py).
settings.register_profile("quick", settings.get_profile("patient"), max_examples=15)

# A shell that starts the tests in its background has SIGINT ignored, and what ignores it hands that on to its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Rooms whose tests take long, quickest first; every other room comes before them.
LATE = ("packaging", "cli", "master", "e2e", "state", "scheduler", "cluster")

# Files that take minutes, the longest first: begun last, one of them would run alone at the end.
LONG = (
    "e2e/test_slurm.py",
    "e2e/test_local.py",
    "published/test_published.py",
    "e2e/test_containers_slurm.py",
    "e2e/test_signals_slurm.py",
    "e2e/test_schedulers_slurm.py",
    "master/http/test_every_command.py",
    "e2e/test_lost_database.py",
    "e2e/test_images_slurm.py",
    "examples/test_digits_frameworks.py",
    "cli/nouns/test_master.py",
    "e2e/test_sbatch_slurm.py",
    "e2e/test_trial_class_searches.py",
    "e2e/test_stopping_slurm.py",
    "e2e/test_verdicts_slurm.py",
    "e2e/test_queue_slurm.py",
    "e2e/test_arrays_slurm.py",
    "cases/test_programs.py",
    "pytorch/deepspeed/test_trainer.py",
    "web/test_browser.py",
    "simulator/test_world.py",
    "cli/commands/test_create.py",
    "exec/setup/test_venv.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--everything", action="store_true", help="run in full what otherwise runs as a sample")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Quick tests fail first, then come files that take minutes. What takes longest is left to ``scripts/test everything``."""
    if not config.getoption("--everything"):
        deselected = [item for item in items if item.get_closest_marker("everything")]
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if not item.get_closest_marker("everything")]

    def stage(item: pytest.Item) -> tuple[int, int]:
        path = item.path.relative_to(ROOT / "tests") if item.path.is_relative_to(ROOT / "tests") else item.path
        if path.as_posix() in LONG:
            return 1, LONG.index(path.as_posix())
        return (2, LATE.index(path.parts[0])) if path.parts[0] in LATE else (0, 0)

    items.sort(key=stage)


pytest_plugins = ["tests.cluster.fixtures", "tests.failures", "tests.postgresql"]


def left_behind() -> dict[int, str]:
    """Processes of dethpc, of a private Slurm or of a database that the tests of this process have started and that still run."""
    from tests.cluster.fixtures import CLUSTERS  # a plugin, which pytest wants to load itself

    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environ = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            words = (folder / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state == "Z" or int(folder.name) == os.getpid():
                continue
            if (MARK in environ and OF_OURS.search(words)) or CLUSTERS in words:
                test = [each for each in environ if each.startswith("PYTEST_CURRENT_TEST=")]
                found[int(folder.name)] = " ".join([folder.name, words, *test])
    return found


@pytest.fixture(scope="session", autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    """No master, trial, daemon of a private Slurm or database server outlives the tests: what would is ended, and fails them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*MARK.split("="))
        yield
    end = time.monotonic() + float(
        os.environ.get("DETHPC_TEST_WAIT_FOR_ENDS", "300")
    )  # a busy machine ends nothing at once
    while (left := left_behind()) and time.monotonic() < end:
        time.sleep(0.2)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if left:
        pytest.fail(
            "the tests left these processes behind; they were ended:\n" + "\n".join(left.values()), pytrace=False
        )


@pytest.fixture(scope="session", autouse=True)
def _no_users_state(_nothing_runs_on: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the state of the user who runs it, nor talks to a master that happens to run."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("dethpc-home")
        patch.setenv("DETHPC_HOME", str(home))
        for name in ("DET_MASTER", "DET_USER", "DET_PASS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _temporary_files_go(_nothing_runs_on: None) -> Iterator[None]:
    """What tests and what they start put into the temporary folder: pip, torchrun and the published client leave files behind."""
    with (
        tempfile.TemporaryDirectory(prefix="dethpc-tests-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        os.chmod(folder, 0o1777)
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _code_is_compiled_once() -> Iterator[None]:
    """For the harness bundle, which every new home gets: 300 modules, 0.6 s of a processor."""
    from dethpc.master.durable import harness

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness, "_bytecode", functools.cache(harness._bytecode))
        yield


@pytest.fixture(autouse=True)
def _environment_is_put_back() -> Iterator[None]:
    """Variables that choose a Slurm, a home or a master: one that a test leaves behind would choose them for those after it."""

    def choosing() -> dict[str, str]:
        return {
            name: value for name, value in os.environ.items() if name.startswith(("SLURM", "DET")) or name == "PATH"
        }

    before = choosing()
    yield
    after = choosing()
    if changed := sorted(name for name, _ in before.items() ^ after.items()):
        for name in changed:
            os.environ.pop(name, None)
        os.environ.update(before)
        pytest.fail(f"the test changed the environment of those after it: {', '.join(changed)}")


@pytest.fixture(scope="session")
def determined_venv() -> Path:
    """The environment of the published ``determined`` client, which cannot share one with dethpc. ``scripts/test`` makes it."""
    venv = Path(os.environ.get("DETHPC_DETERMINED_VENV", ROOT / ".venv-determined"))
    if not (venv / "bin" / "det").exists():
        pytest.skip(f"no published determined client at {venv}: run scripts/test or set DETHPC_DETERMINED_VENV")
    return venv


@pytest.fixture(scope="session")
def python39() -> str:
    """The oldest Python that compute nodes may have. ``scripts/test`` gets one."""
    python = os.environ.get("DETHPC_PYTHON39") or shutil.which("python3.9")
    if not python or subprocess.run([python, "-c", ""], capture_output=True).returncode:
        pytest.skip("no Python 3.9: scripts/get-python3.9 gets one, and DETHPC_PYTHON39 names it")
    return python
