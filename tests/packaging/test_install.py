"""Symbolic links, the alias and the entry point after each way of installing."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROBE = """
import importlib.resources as resources, sys
import dethpc, determined, dethpc.launch, determined.launch
assert determined is dethpc and determined.launch is dethpc.launch
files = resources.files("dethpc")
assert (files / "py.typed").is_file() and (files / "launch" / "__init__.py").is_file()
assert (files / "templates" / "README.md").read_text().startswith("# Templates")
print(dethpc.__file__)
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What ``pip install .`` and ``pip install -e .`` build, made by the build backend itself."""
    out = tmp_path_factory.mktemp("wheels")
    script = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1])); print(b.build_editable(sys.argv[2]))"
    (out / "editable").mkdir()
    command = [sys.executable, "-c", script, str(out), str(out / "editable")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "No module named 'hatchling'" in done.stderr:
        pytest.skip("hatchling is not installed: pip install -e '.[dev]'")
    assert done.returncode == 0, done.stderr
    wheel, editable = done.stdout.split()[-2:]
    return {"wheel": out / wheel, "editable": out / "editable" / editable}


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_everything_is_importable_after_installing(kind: str, wheels: dict[str, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheels[kind])], check=True, capture_output=True)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, "-c", PROBE], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path) if kind == "wheel" else str(ROOT))
    assert (tmp_path / "venv" / "bin" / "det").exists()


def test_everything_is_importable_from_a_bare_path(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROBE], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_wheel_holds_every_file_of_both_packages(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["wheel"]) as archive:
        names = set(archive.namelist())
    listed = subprocess.run(
        ["git", "ls-files", "dethpc", "launchers", "templates", "determined"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            place = name.replace("launchers/", "dethpc/launch/", 1).replace("templates/", "dethpc/templates/", 1)
            assert (place if name.startswith(("launchers/", "templates/")) else name) in names
    assert not [
        name for name in names if name.startswith(("launchers/", "templates/", "tests/")) or "__pycache__" in name
    ]


def test_the_harness_of_an_installed_wheel_equals_that_of_the_source(wheels: dict[str, Path], tmp_path: Path) -> None:
    from dethpc.master.durable import harness

    with zipfile.ZipFile(wheels["wheel"]) as archive:
        archive.extractall(tmp_path)
    assert harness.contents(tmp_path) == harness.contents(ROOT)


def test_a_wheel_can_be_built_from_the_source_archive(tmp_path: Path, wheels: dict[str, Path]) -> None:
    build = "import sys, hatchling.build as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
    done = subprocess.run(
        [sys.executable, "-c", build, "build_sdist", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    archive = tmp_path / done.stdout.split()[-1]
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "src")
    (tree,) = (tmp_path / "src").iterdir()
    done = subprocess.run(
        [sys.executable, "-c", build, "build_wheel", str(tmp_path)],
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as built, zipfile.ZipFile(wheels["wheel"]) as direct:
        assert set(built.namelist()) == set(direct.namelist())


def test_the_links_are_committed_as_links() -> None:
    assert os.readlink(ROOT / "dethpc" / "launch") == "../launchers"
    assert os.readlink(ROOT / "dethpc" / "templates") == "../templates"
