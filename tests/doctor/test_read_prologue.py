"""What fails in a pool's prologue, as the doctor's small job runs it: in bash, watched."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dethpc.doctor.read_nodes import prologue_failure, watched


@pytest.mark.parametrize(
    "lines, failure",
    [
        (["module load nothing_of_this_kind"], '"module load nothing_of_this_kind" exits 127: '),
        (["false", "export A=1"], '"false" exits 1'),
        (["module() { local status; false; status=$?; return $status; }", "module load x"], '"module load x" exits 1'),
        (["export A=1", "if false; then", "  B=2", "fi", "false || true"], ""),
        (["false && export KEY_TOKEN=hunter2", "export API_TOKEN=hunter2 && (exit 3)"], '"( exit 3 )" exits 3'),
        (["export API_TOKEN=hunter2; no_such_command API_TOKEN=hunter2"], "exits 127"),
        ([], ""),
    ],
)
def test_the_first_command_that_fails_is_told_and_the_job_goes_on(
    tmp_path: Path, lines: list[str], failure: str
) -> None:
    script = "\n".join([*watched(lines, tmp_path), "echo on >&2", "false", "echo the end"])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("the end\n", "on\n"), "stderr is the job's own again"
    found = prologue_failure(tmp_path)
    assert failure in found if failure else found == ""
    assert "hunter2" not in found
