"""What options of sbatch in a script, in a configuration and in a shell make of an experiment."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from dethpc.config.experiment import ExperimentConfig
from dethpc.domain.ports import PoolInfo
from dethpc.errors import ConfigError
from dethpc.master.experiments.notes import requested_resources
from dethpc.master.experiments.notes.requested_resources import Cluster, fold
from dethpc.scheduler.slurm.user_script import read


def pool(name: str, slot_type: str = "cuda") -> PoolInfo:
    return PoolInfo(
        name=name, partition=name, nodes=4, slots=16, slots_used=0, slot_type=slot_type, default=name == "main"
    )


CLUSTER = Cluster({"resources": {"resource_pool": "main"}}, [pool("main"), pool("high"), pool("cores", "cpu")])


def script(
    *lines: str, shell: dict[str, str] | None = None, cluster: Cluster = CLUSTER, **config: Any
) -> tuple[ExperimentConfig, str]:
    """Of a script with these lines: the configuration, and the notes."""
    text = "\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), "srun true"])
    options, notes = requested_resources.of_shell(shell or {})
    config = {"entrypoint": "job.sbatch", "searcher": {"name": "single", "metric": "loss"}, **config}
    found, more = fold(yaml.safe_dump(config), read(text, "job.sbatch"), options, cluster)
    return found, "\n".join([*notes, *more])


def arguments(*lines: str, shell: dict[str, str] | None = None, **config: Any) -> tuple[ExperimentConfig, str]:
    """As ``script``, of a program with these ``sbatch_args``."""
    options, notes = requested_resources.of_shell(shell or {})
    config = {"entrypoint": "true", "searcher": {"name": "single", "metric": "loss"}, **config}
    config.setdefault("slurm", {})["sbatch_args"] = list(lines)
    found, more = fold(yaml.safe_dump(config), None, options, CLUSTER)
    return found, "\n".join([*notes, *more])


def test_a_scripts_options_are_the_jobs_own() -> None:
    config, notes = script("--nodes=2 --ntasks-per-node=1", "--gpus-per-node=4 -c 4 --mem=1G --time=10")
    assert config.slurm.sbatch_args == [
        "--nodes=2",
        "--ntasks-per-node=1",
        "--gpus-per-node=4",
        "--cpus-per-task=4",
        "--mem=1G",
        "--time=10",
    ]
    assert (config.resources.slots_per_trial, config.slurm.slots_per_node, notes) == (8, 4, "")


def test_other_gres_stay() -> None:
    config, _ = script("--gres=gpu:1,tmp:100G")
    assert config.slurm.sbatch_args == ["--gres=gpu:1,tmp:100G"]


@pytest.mark.parametrize(
    ("lines", "slots"),
    [
        (["-n 4 -c 2"], 0),
        ([], 0),
        (["--gres=gpu:3090:2 -N3"], 6),
        (["--exclusive -N2"], 8),
        (["--exclusive=user -N2"], 0),
        (["-p cores -n 4 -c 2"], 8),
        (["-p cores"], 1),
    ],
)
def test_slots_are_what_the_job_takes_of_its_pool(lines: list[str], slots: int) -> None:
    config, notes = script(*lines)
    assert config.resources.slots_per_trial == slots
    assert ("asks for no GPU" in notes) == (slots == 0)


def test_gpus_of_a_pool_without_any_are_refused() -> None:
    with pytest.raises(ConfigError, match="pool cores has none"):
        script("-p cores --gres=gpu:2")
    local = Cluster(CLUSTER.defaults, [pool("main", "cpu")], local=True)
    config, notes = script("--gres=gpu:2", cluster=local)
    assert config.resources.slots_per_trial == 2 and "this machine has none" in notes


def test_a_request_that_is_not_understood_creates_nothing() -> None:
    with pytest.raises(ConfigError, match=r"gpu:2080ti:1"):
        script("--gres=gpu:2080ti")
    with pytest.raises(ConfigError, match=r"slurm\.sbatch_args.*gpu:2080ti:1"):
        arguments("--gres=gpu:2080ti")


def test_the_configurations_slots_take_the_place_of_nodes_and_gpus() -> None:
    config, notes = script("-N2 -n8 -c2 --gres=gpu:4,tmp:1G --time=5", resources={"slots_per_trial": 2})
    assert config.slurm.sbatch_args == ["--cpus-per-task=2", "--gres=tmp:1073741824", "--time=5"]
    for option in ("--nodes=2", "--ntasks=8", "--gres=gpu:4,tmp:1G"):
        assert f"job.sbatch: {option} is left out: resources.slots_per_trial is 2, not 8" in notes
    config, notes = script("-N2 --gres=gpu:4", resources={"slots_per_trial": 8})
    assert config.slurm.sbatch_args == ["--nodes=2", "--gres=gpu:4"] and not notes


def test_what_dethpc_does_itself_is_told() -> None:
    config, notes = script('--job-name="demo job" -o out-%j --export=ALL,A=1,B=2 --requeue --parsable')
    assert config.slurm.sbatch_args is None and config.name == "demo job"
    variables = config.environment.variables("cuda")
    assert (variables["A"], variables["B"], variables["SLURM_JOB_NAME"]) == ("1", "2", "demo job")
    for option in ("--job-name=demo job", "--output=out-%j", "--export=ALL,A=1,B=2", "--requeue", "--parsable"):
        assert f"job.sbatch: {option} is left out: " in notes
    assert script("-J other", name="mine")[0].name == "mine"


def test_a_partition_selects_the_pool_and_of_several_the_first_that_has_one() -> None:
    assert script("-p high")[0].resources.resource_pool == "high"
    config, notes = script("-p other,high,main --time=1")
    assert config.resources.resource_pool == "high"
    assert config.slurm.sbatch_args == ["--time=1", "--partition=other,high,main"]
    config, notes = script("-p gone")
    assert config.resources.resource_pool == "main" and "--partition=gone has no resource pool" in notes
    config, notes = script("-p high", resources={"resource_pool": "main"})
    assert config.resources.resource_pool == "main" and "is overridden by resources.resource_pool" in notes


def test_variables_of_the_shell_win_over_the_script_as_with_sbatch() -> None:
    shell = {
        "SBATCH_ACCOUNT": "physics",
        "SBATCH_TIMELIMIT": "7",
        "SBATCH_GPUS": "2",
        "SBATCH_EXCLUSIVE": "",
        "SBATCH_REBOOT": "0",
        "SBATCH_WAIT": "1",
        "SBATCH_PARTITION": "high",
    }
    config, notes = script("--account=chemistry --gpus=1 -p main", shell=shell)
    assert config.slurm.sbatch_args == ["--account=physics", "--gpus=2", "--exclusive", "--time=7"]
    assert (config.resources.slots_per_trial, config.resources.resource_pool) == (2, "high")
    assert "SBATCH_WAIT of this shell has no effect" in notes


def test_of_a_shell_a_program_gets_what_does_not_change_its_shape() -> None:
    config, notes = arguments("--qos=a", shell={"SBATCH_ACCOUNT": "physics", "SBATCH_GPUS": "2"})
    assert config.slurm.sbatch_args == ["--account=physics", "--qos=a"]
    assert config.resources.slots_per_trial == 1 and "--gpus=2 of this shell has no effect" in notes


def test_gpus_in_sbatch_args_are_slots() -> None:
    assert arguments("--nodes=2", "--gpus-per-node=4")[0].resources.slots_per_trial == 8
    assert arguments("--gres=gpu:4", resources={"slots_per_trial": 4})[0].resources.slots_per_trial == 4
    assert arguments("--ntasks-per-node=4", "--gres=tmp:1G")[0].resources.slots_per_trial == 1
    with pytest.raises(ConfigError, match="asks for 8 GPUs, and resources.slots_per_trial for 2; say one number"):
        arguments("--nodes=2", "--gpus-per-node=4", resources={"slots_per_trial": 2})


def test_where_slurm_knows_no_gpus_a_script_gets_whole_nodes() -> None:
    whole = Cluster(CLUSTER.defaults, CLUSTER.pools, unknown_gpus=frozenset({"main"}))
    config, notes = script("-N2 --gres=gpu:4 --time=1", cluster=whole)
    assert config.slurm.sbatch_args == ["--nodes=2", "--time=1"] and config.resources.slots_per_trial == 8
    assert "--gres=gpu:4 is left out: Slurm does not know the GPUs of the pool" in notes
