"""What a shell would read wrongly is told once, at creation; a script for sbatch that sbatch refuses is refused."""

from __future__ import annotations

import pytest

from dethpc.config.experiment import ExperimentConfig
from dethpc.config.loading import load
from dethpc.errors import ConfigError
from dethpc.master.experiments.notes import batch_scripts, code_notes
from tests.context_archives import packed

CONFIG = """
name: x
entrypoint: {entrypoint}
searcher: {{name: single, metric: loss}}
checkpoint_storage: {{type: shared_fs, host_path: /tmp}}
resources: {{resource_pool: default}}
"""


def config(entrypoint: str) -> ExperimentConfig:
    return load(CONFIG.format(entrypoint=entrypoint), file="config").config


def test_dos_line_breaks_of_a_hook_are_told_once_beside_those_of_the_program() -> None:
    given, archive = config("./run.sh"), packed({"startup-hook.sh": b"export X=1\r\nls\r\n", "run.sh": b"ls\r\n"})
    notes = [*code_notes.notes(given, archive, inside=False), *batch_scripts.notes(given, archive)]
    assert [note.split(" has DOS ")[0] for note in notes] == ["startup-hook.sh:1:", "run.sh"]


def test_a_program_with_directives_and_without_an_interpreter_is_refused_as_by_sbatch() -> None:
    archive = packed({"job.sh": b"#SBATCH --gpus=2\npython3 train.py\n"})
    submitted, notes = batch_scripts.submitted(config("./job.sh"), archive)
    assert submitted.entrypoint == "sbatch job.sh" and "it runs as sbatch job.sh would" in notes[0]
    with pytest.raises(ConfigError, match="must begin with #!"):
        batch_scripts.read_script(submitted, archive)
