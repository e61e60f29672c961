"""What the import contracts cannot see: modules that are imported by a name in a string."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Who may import a module whose name is computed, and whose name that is.
COMPUTED = {
    "dethpc/__init__.py": "the package's own submodules and public names",
    "dethpc/cli/group.py": "the commands of its own room, in tables that are checked below",
    "dethpc/core/_on_demand.py": "the modules of its own room, which tests/core/test_on_demand.py compares with what types see",
    "dethpc/exec/harness.py": "the user's trial class",
    "dethpc/pytorch/_load.py": "the user's trial class",
    "determined/__init__.py": "the alias: the same module under the other name",
}
_IMPORTERS = {"import_module", "__import__"}
_OURS = re.compile(r"(dethpc|determined|\.)")
_COMMAND = re.compile(r"dethpc\.(\w+)[\w.]*:\w+")  # "dethpc.room.module:attribute", as a lazy group has it


def calls(source: str) -> Iterator[tuple[int, str | None]]:
    """Line and name of each import by a call; None: the name is no literal."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in _IMPORTERS:
            name = node.args[0] if node.args else None
            literal = isinstance(name, ast.Constant) and isinstance(name.value, str)
            yield node.lineno, name.value if literal else None  # type: ignore[union-attr]


def evasions(path: str, source: str) -> list[str]:
    found = []
    for line, name in calls(source):
        if name is None and path not in COMPUTED:
            found.append(f"{path}:{line} imports a name that it computes")
        elif name is not None and _OURS.match(name):
            found.append(f"{path}:{line} imports {name} past the contracts")
    room = path.split("/")[1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = _COMMAND.fullmatch(node.value)
            if named and named[1] != room:
                found.append(f"{path}:{node.lineno} names {node.value}, of another room")
    return found


def sources() -> dict[str, str]:
    files = [path for top in ("dethpc", "launchers", "determined") for path in (ROOT / top).rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in files}


def test_no_room_imports_another_by_a_name_in_a_string() -> None:
    assert [line for path, source in sources().items() for line in evasions(path, source)] == []


def test_who_may_compute_a_modules_name_still_does() -> None:
    found = sources()
    assert [path for path in COMPUTED if not any(name is None for _, name in calls(found[path]))] == []


@pytest.mark.parametrize(
    "source",
    [
        "importlib.import_module('dethpc.cli.context')",
        "import_module('.cli', 'dethpc')",
        "__import__('determined.core')",
        "import_module(room)",
        "lazy = {'x': ('dethpc.cli.context:collect', '')}",
    ],
)
def test_an_import_round_the_contracts_is_found(source: str) -> None:
    assert len(evasions("dethpc/experimental/_determined.py", source)) == 1


def test_training_code_has_the_names_of_a_search_method_and_is_told_that_it_cannot_pack(
    bundle: Path, node_python: str
) -> None:
    script = (
        "from determined import searcher\n"
        "assert searcher.SearchMethod and searcher.LocalSearchRunner\n"
        "from determined.experimental import client\n"
        "from dethpc.client import Session\n"
        "try:\n"
        "    client.Determined._from_session(Session('http://127.0.0.1:1', 'x')).create_experiment({}, '.')\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [node_python, "-S", "-c", script], env={"PYTHONPATH": str(bundle)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "ContextError" in done.stdout and "create experiments where dethpc is installed" in done.stdout


# ``dataclasses`` loads ``inspect``, which is a sixth of what a node's part of an attempt imports.
NEVER = ("dataclasses", "inspect", "datetime", "calendar")


@pytest.mark.parametrize(
    "module, spared",
    [
        (
            "dethpc.core",
            ["logging", "pathlib", "json", "dethpc.core._context", "dethpc.storage", "dethpc.errors", *NEVER],
        ),
        ("dethpc.core._context", ["hashlib", "shutil", "lzma", "http.client", "dethpc.client", "random", *NEVER]),
        ("determined", ["importlib.abc", "importlib.resources", "tempfile", "dethpc.core", *NEVER]),
        (
            "dethpc.exec.node",
            ["logging", "http.client", "dethpc.client", "hmac", "dethpc.exec.rendezvous", "dethpc.exec.link", *NEVER],
        ),
        ("dethpc.rundir.scratch", ["tempfile", "shutil", "random", "lzma"]),
        ("dethpc.rundir.claim", ["hashlib", "socket", "shutil", "dethpc.domain"]),
    ],
)
def test_what_every_trial_waits_for_imports_little(module: str, spared: list[str]) -> None:
    code = f"import sys, {module}; print([name for name in {spared!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
