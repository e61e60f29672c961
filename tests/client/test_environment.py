from __future__ import annotations

import os
from pathlib import Path

import pytest

from dethpc.client.environment import here, packages


def interpreter(folder: Path, version: str = "3.11", folder_name: str = "site-packages", settings: str = "") -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "lib" / f"python{version}" / folder_name).mkdir(parents=True)
    python = folder / "bin" / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")  # nobody starts it
    python.chmod(0o755)
    if settings:
        (folder / "pyvenv.cfg").write_text(settings)
    return python


def install(python: Path, name: str) -> Path:
    (folder,) = (python.parents[1] / "lib").glob("*/*")
    (folder / name).mkdir()
    return folder


def test_packages_are_found_without_starting_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    python = interpreter(tmp_path / "env")
    for name in (
        "torch-2.13.0+cpu.dist-info",
        "torchvision-1.dist-info",
        "jax-0.9.dist-info",
        "torch",
        "jupyterlab-4.4.dist-info",
    ):
        install(python, name)
    assert packages(str(python)) == {"torch": "2.13.0+cpu", "jax": "0.9", "jupyterlab": "4.4"}


def test_a_venv_has_those_of_its_base_only_where_it_sees_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    base = interpreter(tmp_path / "base")
    install(base, "torch-1.dist-info")
    for sees, found in (("true", {"torch": "1"}), ("false", {})):
        python = interpreter(tmp_path / sees, settings=f"include-system-site-packages = {sees}\n")
        python.unlink()
        python.symlink_to(base)
        assert packages(str(python)) == found


def test_folders_of_pth_files_and_of_pythonpath_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, more, first = interpreter(tmp_path / "env"), tmp_path / "more", tmp_path / "first"
    for folder, name in ((more, "torch-2.dist-info"), (first, "keras-3.dist-info")):
        (folder / name).mkdir(parents=True)
    (install(python, "x") / "a.pth").write_text(f"import os\n{more}\n/nowhere\n")
    monkeypatch.setenv("PYTHONPATH", str(first))
    assert packages(str(python)) == {"torch": "2", "keras": "3"}


def test_the_python3_is_the_first_on_path_and_not_the_one_that_runs_det(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = interpreter(tmp_path / "env")
    monkeypatch.setenv("PATH", f"{python.parent}{os.pathsep}/usr/bin")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/tmp/agent")
    monkeypatch.setitem(os.environb, b"ODD", b"\xff")
    found = here()
    assert found.python == str(python)
    assert "SSH_AUTH_SOCK" not in found.variables and found.variables["ODD"] == b"\xff"
    monkeypatch.setenv("PATH", "/nowhere")
    assert here().python == ""
