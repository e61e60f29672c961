"""The part of the batch script that names the nodes of a job and reads its end, run by bash with commands that greet."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dethpc.scheduler.slurm.script import ScriptInput, render

NAMES = "printf 'n10\\nn2\\nn1\\n'"
ADDRESSES = "printf 'node=n1 address=10.0.0.1\\nnode=n10 address=10.0.0.10\\nnode=n2 address=n2.cluster\\n'"
GREET = "printf 'maintenance of\\nn7\\n\\nn2 and n1 are slow today\\nWelcome to n1\\n'"


def part(folder: Path, begin: str, end: str, programs: dict[str, str], **env: str) -> dict[str, str]:
    """What the lines of the script between ``begin`` and ``end`` export."""
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    text = render(ScriptInput("j", folder, harness="/h.zip"))
    lines = begin + text.partition(begin)[2].partition(end)[0]
    done = subprocess.run(
        ["bash", "-c", f"{lines}\nenv"],
        env={"PATH": f"{folder}:/usr/bin:/bin", "DETHPC_JOB_ID": "7", **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.partition("=")[::2] for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("scontrol", "sinfo"),
    [
        (NAMES, ADDRESSES),
        (f"{GREET}\n{NAMES}\n{GREET}", f"{GREET}\n{ADDRESSES}\n{GREET}"),
        (f"printf 'Welcome! '\n{NAMES}", f"printf 'Welcome! '\n{ADDRESSES}"),
    ],
    ids=["quiet", "banners", "banner without newline"],
)
def test_nodes_keep_their_order_and_get_their_addresses(tmp_path: Path, scontrol: str, sinfo: str) -> None:
    found = part(
        tmp_path,
        "# The nodes in the order",
        "\n# One task per node",
        {"scontrol": scontrol, "sinfo": sinfo},
        SLURM_JOB_NUM_NODES="3",
        SLURM_JOB_NODELIST="n[10,2,1]",
    )
    assert found["DETHPC_NODES"] == "n10,n2,n1"
    assert found["DETHPC_ADDRESSES"] == "10.0.0.10,n2.cluster,10.0.0.1"


def test_nodes_that_sinfo_does_not_show_are_reached_by_their_names(tmp_path: Path) -> None:
    found = part(
        tmp_path,
        "# The nodes in the order",
        "\n# One task per node",
        {"scontrol": NAMES, "sinfo": "exit 1"},
        SLURM_JOB_NUM_NODES="3",
        SLURM_JOB_NODELIST="n[10,2,1]",
    )
    assert found["DETHPC_NODES"] == found["DETHPC_ADDRESSES"] == "n10,n2,n1"


@pytest.mark.parametrize("around", ["", f"{GREET}; echo 17", "printf 'Welcome! '"])
def test_the_end_of_a_job_is_read_amid_other_lines(tmp_path: Path, around: str) -> None:
    after = "" if around.startswith("printf 'Welcome! '") else around
    squeue = f"""{around}
for word in "$@"; do case $word in --format=*) format=${{word#--format=}};; esac; done
echo "${{format//%e/1790000000}}"
{after}"""
    found = part(tmp_path, "# When the job's time is up", "# When the trial is to stop", {"squeue": squeue})
    assert found["DETHPC_DEADLINE"] == "1790000000"


def test_a_job_without_an_end_has_none(tmp_path: Path) -> None:
    for squeue in ("echo 'end of the job=NONE'", "echo 'squeue: error: 12 requests timed out' >&2; exit 1", "echo 17"):
        found = part(tmp_path, "# When the job's time is up", "# When the trial is to stop", {"squeue": squeue})
        assert found["DETHPC_DEADLINE"] == ""
