"""A root directory of Debian with Python, made once by debootstrap and kept under ~/.cache/dethpc: the image of the tests."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

CACHE = Path.home() / ".cache" / "dethpc"
NAME = "debian-bookworm-python3"
PATIENCE = 3600.0
"""Seconds: a minute on an idle machine."""


def _mirror() -> str:
    """The one that apt is set up with."""
    script = f". {Path(__file__).parents[1]}/scripts/packages.sh && debian_mirror"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def debian_root() -> Path:
    """Skips the test where it cannot be made."""
    root = CACHE / NAME
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{NAME}.lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if root.is_dir():
            return root
        debootstrap = shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if debootstrap is None or os.geteuid():
            pytest.skip("an image is made by debootstrap, as root: scripts/packages.sh installs it")
        part = CACHE / f"{NAME}.part"
        shutil.rmtree(part, ignore_errors=True)
        options = ["--variant=minbase", "--include=python3,ca-certificates"]
        # What it mounts ends with its namespace, however it ends: a /proc left below the folder would be removed with it.
        isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", debootstrap]
        try:
            subprocess.run(
                [*isolated, *options, "bookworm", str(part), _mirror()],
                capture_output=True,
                check=True,
                timeout=PATIENCE,
            )
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"debootstrap makes no image here: {error}")
        shutil.rmtree(part / "var/cache/apt", ignore_errors=True)
        part.rename(root)
    return root


def readable_root(folder: Path) -> Path:
    """The same for every user of this machine, by hard links in ``folder``."""
    copy = folder / "image"
    subprocess.run(["cp", "-al", str(debian_root()), str(copy)], check=True, capture_output=True)
    return copy
