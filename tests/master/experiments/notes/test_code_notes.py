"""Who creates an experiment hears of what its hook and code cannot do here."""

from __future__ import annotations

import pytest

from dethpc.config.loading import load
from dethpc.master.experiments.notes import code_notes
from tests.context_archives import packed

CONFIG = """
name: x
entrypoint: {entrypoint}
searcher: {{name: single, metric: loss}}
checkpoint_storage: {{type: shared_fs, host_path: /tmp}}
resources: {{resource_pool: default}}
"""
WORKDIR = "/run/determined/workdir"


def notes(files: dict[str, str], entrypoint: str = "python3 train.py", *, inside: bool = False) -> list[str]:
    config = load(CONFIG.format(entrypoint=entrypoint), file="config").config
    return code_notes.notes(config, packed({path: text.encode() for path, text in files.items()}), inside=inside)


def test_code_that_names_determineds_working_directory_is_told_what_to_use() -> None:
    files = {
        "startup-hook.sh": f"echo\npip install -r {WORKDIR}/requirements.txt\n",
        "src/train.py": f"import os\nDATA = '{WORKDIR}/data'\n",
        "notes.md": WORKDIR,
        "other.py": "import os\n",
    }
    told = notes(files)
    assert sorted(note.partition(": ")[0] for note in told) == ["src/train.py:2", "startup-hook.sh:2"]
    assert all("use a relative path, or $DET_WORKDIR" in note for note in told)
    assert notes(files, inside=True) == []
    (note,) = notes({}, f"python3 {WORKDIR}/train.py")
    assert note.startswith("config: names")


def test_a_hook_with_dos_line_ends_is_told_at_its_line() -> None:
    (note,) = notes({"startup-hook.sh": "#!/bin/bash\r\nexport X=1\r\n"})
    assert note.startswith("startup-hook.sh:1: has DOS line ends") and "sed -i" in note


@pytest.mark.parametrize("head", ["#!/usr/bin/env python3", "#!/usr/bin/zsh", "#!/bin/csh"])
def test_a_hook_that_is_no_shells_is_told_that_bash_reads_it(head: str) -> None:
    (note,) = notes({"startup-hook.sh": f"{head}\necho\n"})
    assert note == f"startup-hook.sh:1: bash reads it, whatever its first line says ({head})"


def test_a_hook_that_bash_cannot_read_is_told_where() -> None:
    (note,) = notes({"startup-hook.sh": "if true; then\n  echo\n"})
    assert note.startswith("startup-hook.sh: bash: line 3: syntax error") and "no trial can start" in note


@pytest.mark.parametrize(
    "head", ["#!/bin/sh", "#!/usr/bin/env bash", "#!/usr/bin/env -S bash -e", "#! /bin/bash -l", ""]
)
def test_a_hook_as_hooks_are_is_told_nothing(head: str) -> None:
    assert notes({"startup-hook.sh": f"{head}\nexport X=$(pwd)\n"}) == []
