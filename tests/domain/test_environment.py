from __future__ import annotations

import json

import pytest

from dethpc.domain.environment import MOST_BYTES, Environment, goes_along


@pytest.mark.parametrize(
    "name",
    ["PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "PYTHONPATH", "LOADEDMODULES", "OMP_NUM_THREADS", "WANDB_API_KEY",
     "AWS_SECRET_ACCESS_KEY", "BASH_FUNC_module%%", "LD_PRELOAD", "TMPDIR", "BASH_ENV"],
)  # fmt: skip
def test_what_a_training_may_need_goes_along(name: str) -> None:
    assert goes_along(name)


@pytest.mark.parametrize(
    "name",
    ["DET_PASS", "DETHPC_HOME", "SLURM_JOB_ID", "SBATCH_PARTITION", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SSH_AUTH_SOCK",
     "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "XDG_RUNTIME_DIR", "KRB5CCNAME", "PGPASSWORD", "CUDA_VISIBLE_DEVICES", "HOSTNAME",
     "PWD", "_", "SHELLOPTS", "POSIXLY_CORRECT", "IFS", "", "A B", "1A", "A-B", "A\n", "BASH_FUNC_x;y%%", "BASH_FUNC_$(id)%%"],
)  # fmt: skip
def test_what_belongs_to_a_session_a_machine_or_another_job_does_not(name: str) -> None:
    assert not goes_along(name)


def test_it_comes_back_byte_by_byte() -> None:
    variables = {
        b"A": b"two\nlines",
        b"B": b"\xff\xfe",
        b"EMPTY": b"",
        b"EQUAL": b"a=b=",
        b"BASH_FUNC_ml%%": b"() { :; }",
    }
    sent = Environment.of(variables, python="/x/bin/python3", packages={"torch": "2.13.0"})
    again = Environment.from_bytes(sent.to_bytes())
    assert again == sent and again.variables == {name.decode(): value for name, value in variables.items()}


def test_what_a_stranger_sends_is_filtered_like_what_we_record() -> None:
    about = {"python": "/x\n\x1b[31m/python3", "packages": {"torch": ["x"]}, "source": "root"}
    data = json.dumps(about).encode() + b"\0SLURM_CONF=/evil\0CUDA_VISIBLE_DEVICES=0\0A B=1\0OK=1\0"
    found = Environment.from_bytes(data)
    assert found.variables == {"OK": b"1"}
    assert (found.python, found.packages, found.source) == ("/x[31m/python3", {"torch": ""}, "shell")


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"A=1\0", b"[]\0", b"{}", b"{}\0A=1", b"{}\0A\0", b"{}\0\0", b"[" * 100_000 + b"\0", b"\xff\0"]
)
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        Environment.from_bytes(data)


def test_too_much_is_refused_and_the_largest_variables_are_named() -> None:
    huge = Environment.of({b"SMALL": b"1", b"LARGE": b"x" * MOST_BYTES})
    with pytest.raises(ValueError, match="LARGE, SMALL.*env -u LARGE"):
        huge.to_bytes()
    with pytest.raises(ValueError, match="at most 524,288"):
        Environment.from_bytes(b"{}\0" + b"A=1\0" * MOST_BYTES)
    with pytest.raises(ValueError, match="less than 131,072 bytes"):
        Environment.from_bytes(b"{}\0A=" + b"x" * (128 << 10) + b"\0")


def test_a_job_that_creates_an_experiment_hands_on_none_of_dethpcs_own_code() -> None:
    bundle = b"/home/.dethpc/harness/harness-0123456789abcdef.zip"
    path = bundle + b"/dethpc/exec/pip_shim:" + bundle
    assert Environment.of({b"PYTHONPATH": path + b":/mine"}).variables == {"PYTHONPATH": b"/mine"}
    assert Environment.of({b"PYTHONPATH": path}).variables == {}
