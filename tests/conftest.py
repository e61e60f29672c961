"""What every room's tests share. Rooms keep their own fixtures beside their tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Rooms whose tests take long, quickest first; every other room comes before them.
LATE = ("packaging", "cli", "master", "e2e", "state", "scheduler", "cluster")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests fail first; the real Slurm comes last."""

    def stage(item: pytest.Item) -> int:
        room = item.path.relative_to(ROOT / "tests").parts[0] if item.path.is_relative_to(ROOT / "tests") else ""
        return LATE.index(room) + 1 if room in LATE else 0

    items.sort(key=stage)


pytest_plugins = ["tests.cluster.fixtures", "tests.postgresql"]


@pytest.fixture(scope="session", autouse=True)
def _no_users_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the state of the user who runs it, nor talks to a master that happens to run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DETHPC_HOME", str(tmp_path_factory.mktemp("dethpc-home")))
        for name in ("DET_MASTER", "DET_USER", "DET_PASS"):
            patch.delenv(name, raising=False)
        yield


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
