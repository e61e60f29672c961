"""Who creates an experiment hears of what would install into an interpreter that its jobs must not change."""

from __future__ import annotations

import sys

import pytest

from dethpc.config.loading import load
from dethpc.master.experiments.notes import installs
from dethpc.rundir.files import read_json
from tests.context_archives import packed
from tests.master.conftest import Served, experiment

CONFIG = """
name: x
entrypoint: {entrypoint}
searcher: {{name: single, metric: loss}}
checkpoint_storage: {{type: shared_fs, host_path: /tmp}}
resources: {{resource_pool: default}}
environment: {{venv: {venv}}}
"""


def told(hook: str = "", entrypoint: str = "python3 train.py", venv: str = "null", **files: str) -> list[str]:
    given = {"startup-hook.sh": hook, **{name.replace("_", "."): text for name, text in files.items()}}
    config = load(CONFIG.format(entrypoint=entrypoint, venv=venv), file="config").config
    return installs.notes(config, packed({path: text.encode() for path, text in given.items()}))


@pytest.mark.parametrize(
    "line", ["pip install x", "python3 -m pip install x", "set -e; pip3 install -r r.txt", "pip3.11 -q install -e ."]
)
def test_a_hook_that_runs_pip_where_det_is_served_may_get_an_environment_of_its_own(line: str) -> None:
    (note,) = told(f"echo hello\n{line}\n{line}\n")
    assert note.startswith(
        f"startup-hook.sh:2: what {sys.prefix}, which serves det, does not have yet is installed into"
    )
    assert told(line, venv="per-experiment") == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("uv pip install x", "uv finds no environment in a job"),
        ("conda install -y x", f"conda install would change {sys.prefix}"),
        ("mamba install x", f"conda install would change {sys.prefix}"),
    ],
)
def test_a_hook_that_installs_by_other_programs_is_told_what_to_use(line: str, words: str) -> None:
    first, second = told(f"{line}\npip install y\n")
    assert first.startswith(f"startup-hook.sh:1: {words}") and "environment.venv: per-experiment" in first
    assert second.startswith("startup-hook.sh:2: what ")


@pytest.mark.parametrize(
    "lines",
    ["# pip install x", "pip download x", "pip install --target there x", "source /my/env/bin/activate\npip install x",
     "python3 -m venv mine\nmine/bin/pip install x", "conda install -n mine x", "echo pip"],
)  # fmt: skip
def test_a_hook_that_installs_elsewhere_is_not(lines: str) -> None:
    assert told(lines) == []


def test_so_is_an_entrypoint() -> None:
    (note,) = told(entrypoint="pip install x && python3 train.py")
    assert note.startswith("entrypoint:1: jobs cannot install")
    (note,) = told(entrypoint="pip install x && python3 train.py", venv="per-experiment")
    assert note == "entrypoint:1: only startup-hook.sh can install into the experiment's environment"
    (note,) = told(entrypoint="job.sbatch", job_sbatch="#!/bin/bash\npip install x\n")
    assert note.startswith("job.sbatch:2: ")


def test_the_owner_hears_of_it_and_its_runs_are_told_where_to_install(served: Served) -> None:
    import base64

    hook = {"path": "startup-hook.sh", "type": ord("0"), "content": base64.b64encode(b"pip install x").decode()}
    config = CONFIG.format(entrypoint="python3 train.py", venv="null")
    body = {"config": config, "modelDefinition": [hook], "activate": False}
    notes = served.session.post("/api/v1/experiments", body)["notes"]
    assert any(f"startup-hook.sh:1: what {sys.prefix}" in note for note in notes)

    config = CONFIG.format(entrypoint="python3 train.py", venv="per-experiment")
    answer = served.session.post("/api/v1/experiments", {**body, "config": config, "activate": True})
    assert not answer["notes"]
    (run,) = [
        run for run in served.daemon.ledger.state.runs.values() if run.experiment_id == answer["experiment"]["id"]
    ]
    served.daemon.builder.prepare([run])(run)
    home = served.daemon.installation.home
    spec = read_json(home.run(run.id).spec)
    assert spec is not None and spec["det_prefix"] == sys.prefix
    assert spec["venv"] == str(home.root / "experiments" / str(run.experiment_id) / "venv")


def test_an_experiments_environment_goes_with_it(served: Served) -> None:
    served.put([experiment(1)])
    home = served.daemon.installation.home
    (home.venv(1) / "bin").mkdir(parents=True)
    served.delete(1)
    assert not home.venv(1).exists() and home.experiment(1).exists()
