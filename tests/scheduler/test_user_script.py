"""What an sbatch script of the user's own asks for. What is refused or taken here, sbatch of 22.05 refuses or takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.domain.entrypoint import batch_script, program
from dethpc.errors import ConfigError
from dethpc.scheduler.slurm import request
from dethpc.scheduler.slurm.options import Unreadable
from dethpc.scheduler.slurm.user_script import has_directives, read


def script(*lines: str) -> str:
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), "srun true"])


def options(*lines: str, extra: list[str] | None = None) -> list[str]:
    return [str(option) for option in read(script(*lines), "train.sbatch", extra or []).options]


@pytest.mark.parametrize(
    ("lines", "shape"),
    [
        (["--nodes=2 --gres=gpu:a100:4"], (2, 2, 8, "a100")),
        (["-N 2", "-G 8"], (2, 2, 8, None)),
        (["-N2-4", "--gpus-per-node 2"], (2, 2, 4, None)),
        (["--ntasks=4 --gpus-per-task=v100:1 -N2"], (2, 4, 4, "v100")),
        (["--gres=shard:1,gpu"], (1, 1, 1, None)),
        (["--gres=gpu:3090:4"], (1, 1, 4, "3090")),
        (["--gpus=3090:4"], (1, 1, 4, "3090")),
        (["--gpus=a100:2,v100:1"], (1, 1, 3, None)),
        (["--gres=gres:gpu:2"], (1, 1, 2, None)),
        (["--gres=gpu:2,gpu:3"], (1, 1, 3, None)),
        (["--gres=none"], (1, 1, 0, None)),
        (["--gpus=8 --gpus-per-node=4"], (2, 2, 8, None)),
        (["--gpus=8 --gpus-per-task=2"], (1, 4, 8, None)),
        (["--gpus-per-socket=1 --sockets-per-node=2 -N2"], (2, 2, 4, None)),
        (["-n4 --tres-per-task=gres/gpu:2,cpu=4"], (1, 4, 8, None)),
        (["-n4 --ntasks-per-gpu=2"], (1, 4, 2, None)),
        (["-n 6", "-c 2"], (1, 6, 0, None)),
        (["--nodes=3"], (3, 3, 0, None)),
        (["--ntasks=8 --tasks-per-node=4"], (2, 8, 0, None)),
        (["--nodes=1", "--tasks-per-node=4", "--cpus-per-task=2"], (1, 4, 0, None)),
        ([], (1, 1, 0, None)),
    ],
)
def test_nodes_tasks_and_gpus_that_a_script_asks_for(lines: list[str], shape: tuple[int, int, int, str | None]) -> None:
    asked = request.of(read(script(*lines), "t").options)
    assert (asked.least_nodes, asked.least_tasks, asked.all_gpus, asked.gpu_type) == shape


@pytest.mark.parametrize(
    "line",
    ["--nodes=$N", "-N two", "-n 2-4", "--ntasks=4K", "--gres=gpu:2080ti", "--gres=gpu:1:2:3", "--gpus-per-node=x:y"]
    + ["--gres=gpu:3090:1,gpu:2", "--gres=gpu:", "-c many"],
)  # fmt: skip
def test_a_request_that_is_not_understood_is_an_error_that_names_it(line: str) -> None:
    with pytest.raises(Unreadable) as error:
        request.of(read(script(line), "t").options)
    assert line.lstrip("-").split("=")[-1].split()[-1] in str(error.value)


def test_options_are_spelled_as_sbatch_takes_them() -> None:
    assert options("-n4 -N 2") == ["--ntasks=4", "--nodes=2"]
    assert options("-Hn2") == ["--hold", "--ntasks=2"]
    assert options("--tasks-per-node=4 --tasks 2") == ["--ntasks-per-node=4", "--ntasks-per-node=2"]
    assert options("--cons gpu --exclusive --mem 3G --nice") == [
        "--constraint=gpu",
        "--exclusive",
        "--mem=3G",
        "--nice",
    ]
    assert options('--comment="a b, c" --time 0-00:10') == ["--comment=a b, c", "--time=0-00:10"]
    assert options("--comment=job#1 -n2", "--comment='a \"b'  # why -n 3") == ["--comment=job", '--comment=a "b']
    assert options("--container-image=x --new thing --flag") == ["--container-image=x", "--new=thing", "--flag"]
    assert options("--time=5", extra=["--time=7"]) == ["--time=5", "--time=7"]


@pytest.mark.parametrize(
    "line", ["--ti=10", "--node 2", "--n=3", "stray", "-n2 5", "--time", "--hold=1", "-Z", '--comment="a b', "-- -n2"]
)
def test_what_sbatch_would_not_take_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(ConfigError) as error:
        options("--qos=a", line)
    assert error.value.problems[0].line == 3


def test_what_makes_no_sense_for_one_trial_is_refused_by_name() -> None:
    with pytest.raises(ConfigError) as error:
        options("-a 1-9", "--wait", "-M other --nodefile=x")
    assert [problem.message.split(" is not possible in train.sbatch: ")[0] for problem in error.value.problems] == [
        "--array",
        "--wait",
        "--clusters",
        "--nodefile",
    ]
    for line in ("hetjob", " packjob"):
        with pytest.raises(ConfigError, match="heterogeneous"):
            options("-n 2", line)


def test_lines_after_the_first_command_are_comments() -> None:
    text = "#!/bin/bash\n\n   # why\n#SBATCH -n2\n ##SBATCH -n3\n #SBATCH -n4\n# SBATCH -n5\nexport A=1\n#SBATCH --array=1-9\n"
    assert [str(option) for option in read(text, "t").options] == ["--ntasks=2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("srun true", "must begin with #!"),
        ("", "an empty file"),
        ("#!/bin/bash\r\n#SBATCH -n 2\r\necho\r\n", "Batch script contains DOS line breaks"),
        ("#!/bin/bash\n#SBATCH -n 2\nif true; then\r\necho\nfi\n", "Batch script contains DOS line breaks"),
        ("#!/bin/bash\necho \0\n", "NUL"),
    ],
)
def test_a_file_that_sbatch_would_refuse_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(text, "t")


def test_lines_for_other_schedulers_are_told() -> None:
    assert read("#!/bin/sh\n#PBS -l walltime=10\n#SBATCH -n2\n", "t").notes == [
        "t: #PBS lines are not read; say the same in #SBATCH lines"
    ]


def test_entrypoints_that_are_sbatch_scripts() -> None:
    assert batch_script("./train.sbatch 1 'a b'") == ("train.sbatch", ["1", "a b"], [])
    assert batch_script(["train.slurm"]) == ("train.slurm", [], [])
    assert batch_script("sbatch --time=5 -N2 run.sh x") == ("run.sh", ["x"], ["--time=5", "-N2"])
    for other in ("python3 train.sbatch.py", "model_def:Trial", "sbatch", "", "echo 'open", ["bash", "train.sbatch"]):
        assert batch_script(other) is None


def test_entrypoints_that_run_a_file_of_the_context_directory() -> None:
    assert program("./job.sh 1 'a b'") == ["job.sh", "1", "a b"]
    assert program(["./tools/run", "x"]) == ["tools/run", "x"]
    assert program("job.sh") == ["job.sh"]
    for other in (
        "bash job.sh",
        "python3 train.py",
        "./job.sh > log",
        "/bin/true.sh",
        "",
        "./a 'open",
        "model_def:Trial",
    ):
        assert program(other) == []


def test_a_script_with_directives_is_one_that_is_meant_for_sbatch() -> None:
    assert has_directives(script("-n 2"))
    assert not has_directives("#!/bin/bash\necho\n#SBATCH -n 2\n")
    assert has_directives("#SBATCH -n 2\n")


@given(st.lists(st.text(alphabet="-=#abcNnGo:0123456789 '\"\\", max_size=20), max_size=5))
def test_any_lines_are_understood_or_refused(lines: list[str]) -> None:
    try:
        asked = request.of(read(script(*lines), "t").options)
    except (ConfigError, Unreadable):
        return
    assert asked.all_gpus >= 0 and asked.least_nodes >= 0
