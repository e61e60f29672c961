"""What an sbatch script of the user's own asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.domain.entrypoint import batch_script
from dethpc.errors import ConfigError
from dethpc.scheduler.slurm.user_script import read


def script(*lines: str) -> str:
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), "srun true"])


@pytest.mark.parametrize(
    ("lines", "shape"),
    [
        (["--nodes=2 --gres=gpu:a100:4"], (8, 4, "a100")),
        (["-N 2", "-G 8"], (8, 4, None)),
        (["-N2-4", "--gpus-per-node 2"], (4, 2, None)),
        (["--ntasks=4 --gpus-per-task=v100:1 -N2"], (4, 2, "v100")),
        (["--gres=shard:1,gpu"], (1, 1, None)),
        (["-n 6", "-c 2"], (12, 12, None)),
        (["--nodes=3"], (3, 1, None)),
        ([], (None, 1, None)),
    ],
)
def test_slots_follow_from_the_scripts_gpus_or_else_its_cores(
    lines: list[str], shape: tuple[int | None, int, str | None]
) -> None:
    found = read(script(*lines), "train.sbatch")
    assert (found.slots(), found.slots_per_node(), found.gpu_type) == shape


def test_cores_count_as_slots_of_the_pools_size() -> None:
    assert read(script("-N2 --ntasks-per-node=4 -c 3"), "t").slots(cpus_per_slot=6) == 4


def test_each_option_is_kept_left_out_with_a_note_or_refused() -> None:
    found = read(script("--time 10:00 -p gpu -J name", "--mail-type=END --exclusive -o out-%j --chdir=/x # why"), "t")
    assert found.kept == ["--time=10:00", "--mail-type=END", "--exclusive"]
    assert [note.split(" is left out")[0] for note in found.notes] == [
        "t: --job-name=name",
        "t: --output=out-%j",
        "t: --chdir=/x",
    ]
    assert found.partition == "gpu"
    with pytest.raises(ConfigError) as error:
        read(script("-a 1-9", "--wait", "-M other"), "t")
    assert [problem.found for problem in error.value.problems] == ["--array in t", "--wait in t", "--clusters in t"]


def test_lines_after_the_first_command_are_comments_and_given_options_win() -> None:
    text = script("--time=5", "") + "\n#SBATCH --array=1-9\n"
    assert read(text, "t", ["--time=7"]).kept == ["--time=7"]


def test_a_file_that_is_no_script_is_refused() -> None:
    with pytest.raises(ConfigError, match="a script that begins with #!"):
        read("srun true", "t")


def test_entrypoints_that_are_sbatch_scripts() -> None:
    assert batch_script("./train.sbatch 1 'a b'") == ("train.sbatch", ["1", "a b"], [])
    assert batch_script(["train.slurm"]) == ("train.slurm", [], [])
    assert batch_script("sbatch --time=5 -N2 run.sh x") == ("run.sh", ["x"], ["--time=5", "-N2"])
    for other in ("python3 train.sbatch.py", "model_def:Trial", "sbatch", "", "echo 'open", ["bash", "train.sbatch"]):
        assert batch_script(other) is None


@given(st.lists(st.text(alphabet="-=#abcNnGo:0123456789 '\"\\", max_size=20), max_size=5))
def test_any_lines_are_understood_or_refused(lines: list[str]) -> None:
    try:
        found = read(script(*lines), "t")
    except ConfigError:
        return
    assert found.slots_per_node() >= 0
