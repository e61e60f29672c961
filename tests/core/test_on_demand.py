"""``dethpc.core`` loads its names when they are used, and nobody can tell."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from dethpc import core


def script(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def names_that_types_see() -> dict[str, str]:
    """Name -> the module that defines it, by the imports that only type checkers read."""
    tree = ast.parse(Path(core.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        found |= {each.name: str(node.module) for each in node.names}
    return found


@pytest.mark.parametrize("name", core.__all__)
def test_a_name_is_what_its_module_defines_whoever_asks(name: str) -> None:
    module = names_that_types_see()[name]
    code = (
        f"import sys\nfrom dethpc import core\nassert {module!r} not in sys.modules\n"
        f"from dethpc.core import {name} as imported\n"
        f"import determined.core, {module} as home\n"
        f"assert core.{name} is imported is home.{name} is determined.core.{name} is vars(core)[{name!r}]"
    )
    script(code)


def test_types_and_the_interpreter_know_the_same_names() -> None:
    assert sorted(core.__all__) == sorted(names_that_types_see())
    assert set(core.__all__) <= set(dir(core))


def test_dir_and_a_star_have_every_name_before_any_is_used() -> None:
    code = (
        "from dethpc import core\nfound = dir(core)\n"
        "assert found == sorted(set(found)) and {*core.__all__, '_checkpoint', '__doc__'} <= {*found}\n"
        "assert 'Context' not in vars(core)\n"
        "from dethpc.core import *\nprint(Context.__module__, _dummy_init.__module__)"
    )
    assert script(code) == "dethpc.core._context dethpc.core._context"


def test_a_name_that_is_none_is_said_in_pythons_words() -> None:
    with pytest.raises(AttributeError, match="module 'dethpc.core' has no attribute 'contxt'"):
        core.contxt  # type: ignore[attr-defined] # noqa: B018
    assert not hasattr(core, "__wrapped__")


def test_a_module_is_an_attribute_as_if_it_were_imported() -> None:
    assert script("import determined as det\nprint(det.core._train.TrainContext.__name__)") == "TrainContext"


def test_what_was_pickled_comes_back_where_nothing_is_loaded() -> None:
    import pickle

    kept = pickle.dumps([core.DownloadMode.LocalWorkersShareDownload, core.Unit.EPOCHS, core.EarlyExitReason])
    assert script(f"import dethpc.core, pickle\nprint(pickle.loads({kept!r}))") == str(pickle.loads(kept))


def test_many_threads_get_the_same_objects() -> None:
    code = (
        "import threading\nfrom dethpc import core\n"
        "found, door = [], threading.Barrier(16)\n"
        "def ask(k):\n"
        "    door.wait()\n"
        "    names = core.__all__[k:] + core.__all__[:k]\n"
        "    found.append({name: id(getattr(core, name)) for name in names})\n"
        "threads = [threading.Thread(target=ask, args=(k,)) for k in range(16)]\n"
        "[each.start() for each in threads], [each.join() for each in threads]\n"
        "print(len(found), len({tuple(sorted(each.items())) for each in found}))"
    )
    assert script(code) == "16 1"


def test_a_child_is_no_fork_of_half_a_load() -> None:
    """One thread is made to wait in the midst of a load, while another forks."""
    code = (
        "import importlib, os, signal, sys, threading\nfrom dethpc import core\nfrom dethpc.core import _on_demand\n"
        "begun, load = threading.Event(), importlib.import_module\n"
        "def slowly(name):\n"
        "    begun.set()\n"
        "    threading.Event().wait(0.5)\n"
        "    return load(name)\n"
        "importlib.import_module = slowly\n"
        "thread = threading.Thread(target=lambda: core.init)\n"
        "thread.start()\n"
        "begun.wait()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(0 if 'init' in vars(core) or 'dethpc.core._context' in sys.modules else 3)\n"
        "thread.join()\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert script(code) == "0"


def test_a_context_has_all_that_stopping_needs_and_imports_nothing_more(tmp_path: Path) -> None:
    """What asks a training to stop may come at any line of it, in the midst of an import or at the interpreter's end too."""
    code = (
        "import signal, os, sys\nfrom dethpc import core\n"
        f"context = core.init(checkpoint_storage={str(tmp_path)!r})\ncontext.start()\n"
        "loaded = set(sys.modules)\n"
        "assert {f'dethpc.core.{name}' for name in dir(core) if name.startswith('_') and name[1].islower()"
        " and isinstance(getattr(core, name), type(sys))} <= loaded\n"
        "def stop(*_):\n"
        "    assert context.preempt.should_preempt() is False and core.PreemptMode.ChiefOnly\n"
        "    assert core.EarlyExitReason.INVALID_HP and core.DownloadMode.NoSharedDownload\n"
        "    context.train.report_validation_metrics(1, {'loss': 1.0})\n"
        "    with context.checkpoint.store_path({'steps_completed': 1}) as (path, _): (path / 'a').write_text('b')\n"
        "    context.close()\n"
        "    print(sorted(name for name in set(sys.modules) - loaded if name.startswith('dethpc')))\n"
        "signal.signal(signal.SIGTERM, stop)\nos.kill(os.getpid(), signal.SIGTERM)"
    )
    assert script(code) == "[]"


def test_a_name_that_was_used_is_there_to_the_interpreters_very_end() -> None:
    code = (
        "from dethpc import core\ncore.init\n"
        "class Late:\n"
        "    def __init__(self): self.core = core\n"
        "    def __del__(self): print(self.core.init.__name__, self.core._context.__name__)\n"
        "late = Late()\nlate.itself = late"
    )
    assert script(code) == "init dethpc.core._context"
