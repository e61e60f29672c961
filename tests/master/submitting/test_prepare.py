from __future__ import annotations

import pytest

from dethpc.config.sections.environment import Environment
from dethpc.master.submitting.job_environment import of_master


def test_a_job_gets_no_variable_of_another_job_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SBATCH_PARTITION", "OMPI_COMM_WORLD_RANK", "DET_PASS", "DETHPC_HOME"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("MODULEPATH", "/modules")
    environment = of_master()
    assert "x" not in environment.values()
    assert environment["MODULEPATH"] == "/modules"


def test_user_variables_may_depend_on_the_kind_of_slot() -> None:
    environment = Environment.model_validate({"environment_variables": {"cpu": ["A=1=2"], "cuda": ["A=3"]}})
    assert environment.variables("cpu") == {"A": "1=2"}
    assert environment.variables("cuda") == {"A": "3"}
