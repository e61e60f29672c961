"""Interpreters of every supported version, as far as this machine has them."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from pathlib import Path

import pytest

NODE_VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")


def interpreter(version: str) -> str:
    """Path of a Python of this version; skips the test where there is none."""
    patterns = (
        f"~/.pyenv/versions/{version}.*/bin/python3",
        f"~/.local/share/uv/python/cpython-{version}.*/bin/python3",
    )
    candidates = [
        shutil.which(f"python{version}") or "",
        *(path for p in patterns for path in glob.glob(os.path.expanduser(p))),
    ]
    for candidate in candidates:
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    pytest.skip(f"no Python {version} on this machine")


@pytest.fixture(scope="session", params=NODE_VERSIONS)
def node_python(request: pytest.FixtureRequest) -> str:
    """A Python as a compute node may have it."""
    return interpreter(request.param)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The harness bundle of this source tree."""
    from dethpc.master.durable import harness

    return harness.build(tmp_path_factory.mktemp("home"))
