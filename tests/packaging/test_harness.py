"""The harness bundle: deterministic, written once, importable by any node's bare Python."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from dethpc.master.durable import harness

# Modules of the training APIs need the user's framework; everything else needs the standard library alone.
FRAMEWORK_ROOMS = (
    "dethpc.pytorch",
    "dethpc.keras",
    "dethpc.transformers",
    "dethpc.lightning",
    "dethpc.experimental.pytorch",
)
NEEDS_PATHSPEC = ("dethpc.context.collect", "dethpc.context.ignore")  # what creates experiments, in jobs too

IMPORT_ALL = """
import importlib, sys, warnings
warnings.simplefilter("error")
bundle, *names = sys.argv[1:]
sys.path.insert(0, bundle)
failed = []
for name in names:
    try:
        module = importlib.import_module(name)
        assert module.__file__.startswith(bundle), module.__file__
    except BaseException as error:
        failed.append(f"{name}: {error!r}")
sys.exit("\\n".join(failed) or None)
"""


def sources(bundle: Path) -> list[str]:
    return [name for name in zipfile.ZipFile(bundle).namelist() if name.endswith(".py")]


def modules(bundle: Path) -> list[str]:
    names = [name[: -len(".py")].replace("/", ".") for name in sources(bundle)]
    names = [name[: -len(".__init__")] if name.endswith(".__init__") else name for name in names]
    left_out = (
        "dethpc.exec.pip_shim.pip",
        "determined.exec.pip_shim.pip",
        *FRAMEWORK_ROOMS,
        *NEEDS_PATHSPEC,
    )  # the first becomes the real pip
    return [name for name in names if not name.endswith(".__main__") and not name.startswith(left_out)]


def test_every_module_imports_from_the_bundle_alone_on_a_bare_python(
    bundle: Path, node_python: str, tmp_path: Path
) -> None:
    names = modules(bundle)
    names += ["determined" + name[len("dethpc") :] for name in names if name.startswith("dethpc.")]
    done = subprocess.run(
        [node_python, "-S", "-E", "-I", "-c", IMPORT_ALL, str(bundle), *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_file_of_the_bundle_compiles_on_every_node_python(bundle: Path, node_python: str, tmp_path: Path) -> None:
    script = (
        "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nfor n in sys.argv[2:]: compile(z.read(n), n, 'exec')"
    )
    done = subprocess.run(
        [node_python, "-S", "-I", "-c", script, str(bundle), *sources(bundle)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_bundle_holds_the_node_rooms_and_nothing_of_the_login_side(bundle: Path) -> None:
    names = zipfile.ZipFile(bundle).namelist()
    assert {"dethpc/__init__.py", "dethpc/errors.py", "dethpc/launch/__init__.py", "determined/__init__.py"} <= set(
        names
    )
    login = ("master", "state", "scheduler", "engine", "config", "cli", "deploy")
    assert not [name for name in names if name.startswith(tuple(f"dethpc/{room}/" for room in login))]
    assert not {"dethpc/domain/facts.py", "dethpc/searcher/methods.py"} & set(names)


def test_the_same_source_gives_the_same_bytes_and_is_written_once(tmp_path: Path) -> None:
    first = harness.build(tmp_path / "a")
    again = harness.build(tmp_path / "a")
    other = harness.build(tmp_path / "b")
    assert first == again and first.name == other.name
    assert first.read_bytes() == other.read_bytes()
    stamp = first.stat()
    harness.build(tmp_path / "a")
    assert (first.stat().st_mtime_ns, first.stat().st_ino) == (stamp.st_mtime_ns, stamp.st_ino)
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_the_bundle_is_readable_inside_a_private_folder_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        path = harness.build(tmp_path / "home")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_masters_own_python_need_not_compile_what_it_imports(bundle: Path, tmp_path: Path) -> None:
    names = set(zipfile.ZipFile(bundle).namelist())
    assert {f"{name}c" for name in sources(bundle)} <= names
    (tmp_path / "bare.zip").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "bare.zip", "w") as bare:
        for name in names - set(sources(bundle)):
            bare.writestr(name, zipfile.ZipFile(bundle).read(name))
    code = "import dethpc.core, dethpc.exec"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(tmp_path / "bare.zip")}, cwd=tmp_path, check=False
    )
    assert done.returncode == 0


def test_a_changed_file_gives_another_bundle(tmp_path: Path) -> None:
    tree = harness.contents(Path(harness.__file__).parents[3])
    for name, data in tree.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert harness.contents(tmp_path) == tree
    (tmp_path / "dethpc/errors.py").write_bytes(b"changed")
    assert harness.contents(tmp_path) != tree
