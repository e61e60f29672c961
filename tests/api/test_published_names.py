"""Every public name and signature of the published ``determined`` stands in ours, but for the differences listed here."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from dethpc.published import MODULES, NAMES
from tests.waiting import LONG_ENOUGH

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

_MADE = "the Core API makes it, nobody else: ours writes a journal where theirs calls the master"
_USERS = "jobs run as the owner of the master: a link to a Unix user has no effect"
_LAUNCHER = "inside of a launcher: its interface is its command line"
_TRIALS = "inside of Determined's trial controllers"
_LEGACY = "of TFKerasTrial, which is deprecated: the name is there, and using it says what to use instead"
_RAISED = "the client makes it from the master's words, nobody else: it takes a message"
_TASKS = "commands, notebooks, shells and TensorBoards come later"
_TOKENS = "which tokens are kept where is the client's own affair: login(), login_with_cache() and login_from_task() are there"
_ROLES = "inside of the command line: dethpc.client has calls of its own for users and groups"
_STORAGES = "inside of Determined's storage: files are copied by the Core API"
_OBJECTS = "a prefix is taken as it is written"
_HANDFUL = "inside of Determined: published training code takes merge_dicts and download_gcs_blob_with_backoff from it"
_PACHYDERM = "there is no Pachyderm here"

# Modules of the published package that have no counterpart, and why.
INSIDE = {
    "determined._*": "inside of the package: its names are importable from determined",
    "determined.*._[a-z]*": "inside of the package: its names are importable from the module above",
    "determined.cli*": "the command line is `det`; published code imports the SDK",
    "determined.deploy*": "`det deploy` has other targets: this is Slurm",
    **{name: why for name, why in MODULES.items() if name != "determined.integrations*"},  # of older releases
}

# What differs (as fnmatch reads it) and why. Modules that come later are listed whole.
ACCEPTED = {
    "determined.TrialContext.*": _TRIALS,
    "determined.InvalidHP.__init__": "an exception as any: it takes a message, which theirs makes optional",
    "determined.TrialInfo.__init__": "a parameter that theirs demands may be left out",
    "determined.common.api.*NTSC*": _TASKS,
    "determined.common.api.*_ntsc_*": _TASKS,
    "determined.common.api.*Session.AUTH_HEADER": "the client's session sends the token itself",
    "determined.common.api.*Session.__init__": "a number of tries is the default of what may also be a urllib3.Retry",
    "determined.common.api.*_assignment_request": _ROLES,
    "determined.common.api.*_to_*_id*": _ROLES,
    "determined.common.api.not_found_errs": _ROLES,
    "determined.common.api.wait_for_task_ready": _TASKS,
    "determined.common.api.authentication.*": _TOKENS,
    "determined.common.api.errors.*.__init__": _RAISED,
    "determined.common.storage.*.delete": "a parameter that theirs demands may be left out",
    "determined.common.storage.*.from_config": "a parameter that theirs demands may be left out",
    "determined.common.storage.CloudStorageManager.__init__": "it is of no folder, and is made by its kinds alone",
    "determined.common.storage.StorageManager.__init__": "it is of no folder, and is made by its kinds alone",
    "determined.common.storage.*.get_storage_prefix": _OBJECTS,
    "determined.common.storage.normalize_prefix": _OBJECTS,
    "determined.common.util.get_max_retries_config": "of urllib3, which is not among our dependencies",
    "determined.core.CheckpointContext.__init__": _MADE,
    "determined.core.Context.__init__": _MADE,
    "determined.core.*ExperimentalCoreContext.__init__": _MADE,
    "determined.core.PreemptContext.__init__": _MADE,
    "determined.core.ProfilerContext.__init__": _MADE,
    "determined.core.SearcherContext.__init__": _MADE,
    "determined.core.SearcherOperation.__init__": _MADE,
    "determined.core.TrainContext.__init__": _MADE,
    "determined.experimental.*get_pachyderm_*": _PACHYDERM,
    "determined.experimental.*oauth_client*": "there is no OAuth here",
    "determined.experimental.*Oauth2ScimClient": "there is no OAuth here",
    "determined.experimental.*User.link_with_agent": _USERS,
    "determined.experimental.*delete_tensorboard_files": "comes with `det tensorboard`",
    "determined.experimental.*TrainingMetrics.__init__": "the SDK makes it, nobody else",
    "determined.experimental.*ValidationMetrics.__init__": "the SDK makes it, nobody else",
    "determined.experimental.core_v2.*Config.__init__": "names the fields that theirs takes as **kwargs",
    "determined.launch.*.*": _LAUNCHER,
    "determined.pytorch.PyTorchTrial.trial_controller_class": _TRIALS,
    "determined.tensorboard.*TensorboardManager": _STORAGES,
    "determined.tensorboard.build": _STORAGES,
    "determined.util.*": _HANDFUL,
    "determined.keras.DeterminedCallback.on_*": "logs may be left out, as of Keras's own hooks",
    "determined.keras.*TFKeras*": _LEGACY,
    "determined.keras.[gs]et_rng_state": _TRIALS,
    "determined.keras.callbacks.*": _LEGACY,
    "determined.pytorch.deepspeed.DeepSpeedTrial.trial_controller_class": _TRIALS,
    "determined.pytorch.deepspeed.DeepSpeedTrialController*": _TRIALS,
}

STANDING_IN = {f"{module}.{name}" for module, named in NAMES.items() for some in named for name in some.split()}


def names(python: Path | str, **env: str) -> dict[str, Any]:
    done = subprocess.run(
        [str(python), str(HERE / "dump_names.py")],
        env={**{k: v for k, v in os.environ.items() if not k.startswith(("DET", "PYTHON"))}, **env},
        capture_output=True,
        text=True,
        timeout=LONG_ENOUGH,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # DeepSpeed prints something, too
    return found


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, what differs), from the whole to its parts: what is missing is not looked into."""
    for module, published in theirs.items():
        assert "" not in published, f"{module} of the published package: {published['']}"
        if "" in ours[module]:
            yield module, ours[module][""]
            continue
        for name, thing in published.items():
            mine = ours[module].get(name)
            if mine is None:
                yield f"{module}.{name}", "missing"
            elif mine["kind"] != thing["kind"]:
                yield f"{module}.{name}", f"is a {mine['kind']}, not a {thing['kind']}"
            elif thing["kind"] == "function":
                yield from compare(f"{module}.{name}", thing["parameters"], mine["parameters"])
            else:
                for member, value in thing["members"].items():
                    if member not in mine["members"]:
                        yield f"{module}.{name}.{member}", "missing"
                    elif thing["kind"] == "enum":
                        if mine["members"][member] != value:
                            yield f"{module}.{name}.{member}", f"is {mine['members'][member]}, not {value}"
                    else:
                        yield from compare(f"{module}.{name}.{member}", value, mine["members"][member])


def compare(name: str, theirs: Any, ours: Any) -> Iterator[tuple[str, str]]:
    """Ours may have more parameters, if they need not be given."""
    if theirs == ours or theirs is None:
        return
    if isinstance(theirs, str) or isinstance(ours, str) or ours is None:
        yield name, f"is {ours}, not {theirs}"
        return
    by_name = {one[0]: one for one in ours}
    for at, one in enumerate(theirs):
        same = by_name.get(one[0])
        if same is None:
            yield name, f"has no parameter {one[0]}"
            return
        positional = one[1].startswith("POSITIONAL")
        if same[1:] != one[1:] or (positional and ours[at][0] != one[0]):
            yield name, f"parameter {one[0]} is {same[1:]} at {ours.index(same)}, not {one[1:]} at {at}"
            return
    known = {one[0] for one in theirs}
    for one in ours:
        if one[0] not in known and not one[2] and not one[1].startswith("VAR"):
            yield name, f"needs parameter {one[0]}"


@pytest.fixture(scope="module")
def found(determined_venv: Path) -> list[tuple[str, str]]:
    return list(differences(names(determined_venv / "bin" / "python"), names(sys.executable, PYTHONPATH=str(ROOT))))


def meets(name: str, accepted: str) -> bool:
    """The SDK's older name has the same classes."""
    return fnmatchcase(name.replace(".common.experimental.", ".experimental."), accepted)


def test_every_difference_is_accepted(found: list[tuple[str, str]]) -> None:
    accepted = [*ACCEPTED, *STANDING_IN]
    unknown = [f"{name}: {what}" for name, what in found if not any(meets(name, one) for one in accepted)]
    assert not unknown, "\n".join(["differs from the published package:", *unknown])


def test_every_accepted_difference_exists(found: list[tuple[str, str]]) -> None:
    idle = [one for one in ACCEPTED if not any(meets(name, one) for name, _ in found)]
    assert not idle, f"accepted, and no difference any more: {', '.join(idle)}"


@pytest.fixture(scope="module")
def lacking(determined_venv: Path) -> list[str]:
    """The published package's modules that ours has not; nothing is imported."""
    (package,) = determined_venv.glob("lib/python3*/site-packages/determined")
    files = [file.relative_to(package.parent).with_suffix("") for file in package.rglob("*.py")]
    named = {".".join(file.parts).removesuffix(".__init__") for file in files}
    return sorted(name for name in named if not has_module(name))


def has_module(name: str) -> bool:
    path = ROOT.joinpath("dethpc", *name.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").exists()


def test_every_module_can_be_imported(lacking: list[str]) -> None:
    unknown = [name for name in lacking if not any(fnmatchcase(name, one) for one in INSIDE)]
    assert not unknown, f"modules of the published package that are not here: {', '.join(unknown)}"
    idle = [one for one in INSIDE if not any(fnmatchcase(name, one) for name in lacking)]
    assert not idle, f"accepted, and no difference any more: {', '.join(idle)}"


ASKED = "import importlib, sys\nfor name in sys.argv[1:]:\n  module, _, last = name.rpartition('.')\n  " + (
    "getattr(importlib.import_module(module), last, None) is None and print(name)"
)


def test_what_is_only_published_is_published_and_says_here_what_to_use(determined_venv: Path) -> None:
    names = sorted(name for name in STANDING_IN if "keras" not in name)  # whose frameworks are not beside the client
    there = subprocess.run(
        [str(determined_venv / "bin" / "python"), "-c", ASKED, *names], capture_output=True, text=True, check=True
    )
    assert not there.stdout, "stands in for names that nobody published"
    for name in names:
        module, _, last = name.rpartition(".")
        stand_in = getattr(importlib.import_module(module), last)
        with pytest.raises(NotImplementedError, match=rf"no {name}: .+docs/from-determined.md"):
            stand_in()
        with pytest.raises(NotImplementedError, match=f"no {name}: "):
            type("Mine", (stand_in,), {})
