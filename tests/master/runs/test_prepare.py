from __future__ import annotations

import pytest

from dethpc.master.runs.prepare import Shape, job_environment, shape, user_variables


@pytest.mark.parametrize(
    ("slots", "per_node", "expected"),
    [
        (0, 4, Shape(1, 0, "cuda")),
        (1, 4, Shape(1, 1, "cuda")),
        (4, 4, Shape(1, 4, "cuda")),
        (8, 4, Shape(2, 4, "cuda")),
        (16, 0, Shape(1, 16, "cuda")),
    ],
)
def test_slots_are_spread_over_as_few_nodes_as_hold_them(slots: int, per_node: int, expected: Shape) -> None:
    assert shape(slots, per_node, "cuda") == expected


def test_slots_that_cannot_be_spread_evenly_are_refused_with_a_way_out() -> None:
    with pytest.raises(ValueError, match=r"6 slots on nodes of 4.*multiple of 4.*slurm.slots_per_node"):
        shape(6, 4, "cuda")
    with pytest.raises(ValueError, match="single node"):
        shape(8, 4, "cuda", single_node=True)


def test_a_job_gets_no_variable_of_another_job_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SBATCH_PARTITION", "OMPI_COMM_WORLD_RANK", "DET_PASS", "DETHPC_HOME"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("MODULEPATH", "/modules")
    environment = job_environment()
    assert "x" not in environment.values()
    assert environment["MODULEPATH"] == "/modules"


def test_user_variables_may_depend_on_the_kind_of_slot() -> None:
    config = {"environment": {"environment_variables": {"cpu": ["A=1=2"], "cuda": ["A=3"]}}}
    assert user_variables(config, "cpu") == {"A": "1=2"}
    assert user_variables(config, "cuda") == {"A": "3"}
