"""Slurm's words, as its commands have been seen to spell them."""

from __future__ import annotations

import pytest

from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import JobState
from dethpc.scheduler.slurm import states
from dethpc.scheduler.slurm.environment import scrub
from dethpc.scheduler.slurm.hostlist import expand
from dethpc.scheduler.slurm.pools import node_state


@pytest.mark.parametrize(
    ("word", "state"),
    [
        *((state.value, state) for state in JobState),
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("CANCELLED+", JobState.CANCELLED),
        ("PENDING,COMPLETING", JobState.COMPLETING),
        ("CONFIGURING", JobState.PENDING),
        ("REQUEUE_HOLD", JobState.PENDING),
        ("SUSPENDED", JobState.RUNNING),
        ("SIGNALING", JobState.RUNNING),
        ("STAGE_OUT", JobState.RUNNING),
        ("REVOKED", JobState.CANCELLED),
        ("A_WORD_OF_NEXT_YEAR", JobState.RUNNING),
        ("", JobState.RUNNING),
    ],
)
def test_states(word: str, state: JobState) -> None:
    assert states.job_state(word) is state


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("0:0", (0, None)),
        ("3:0", (3, None)),
        ("0:15", (None, 15)),
        ("0:9", (None, 9)),
        ("768", (3, None)),
        ("9", (None, 9)),
        ("0", (0, None)),
        ("139", (None, 11)),
        ("", (None, None)),
        ("N/A", (None, None)),
    ],
)
def test_exit_status(text: str, status: tuple[int | None, int | None]) -> None:
    assert states.exit_status(text) == status


def test_times_and_reasons() -> None:
    assert states.epoch("1795256061") == 1795256061.0
    assert [states.epoch(text) for text in ("N/A", "NONE", "Unknown", "", "0")] == [None] * 5
    assert [states.reason(word) for word in ("None", "Resources", "QOSMaxGRESPerUser")] == [
        "",
        "Resources",
        "QOSMaxGRESPerUser",
    ]
    assert states.reason("ReqNodeNotAvail, UnavailableNodes:n1") == "ReqNodeNotAvail,_UnavailableNodes:n1"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("None assigned", ()),
        ("n1", ("n1",)),
        ("n[0-3,7]", ("n0", "n1", "n2", "n3", "n7")),
        ("n[08-10],login-1", ("n08", "n09", "n10", "login-1")),
        ("r[0-1]n[1,3]", ("r0n1", "r0n3", "r1n1", "r1n3")),
        ("gpu-a[1-2]-ib,gpu-b", ("gpu-a1-ib", "gpu-a2-ib", "gpu-b")),
        ("c[001-002,100]", ("c001", "c002", "c100")),
    ],
)
def test_host_lists(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("idle", NodeState.IDLE),
        ("mix", NodeState.MIXED),
        ("ALLOCATED", NodeState.ALLOCATED),
        ("comp", NodeState.COMPLETING),
        ("down*", NodeState.DOWN),
        ("drain", NodeState.DRAINED),
        ("drng@", NodeState.DRAINING),
        ("idle~", NodeState.IDLE),
        ("mix-", NodeState.MIXED),
        ("resv", NodeState.RESERVED),
        ("plnd", NodeState.PLANNED),
        ("boot^", NodeState.REBOOTING),
        ("a later word", NodeState.UNKNOWN),
    ],
)
def test_words_of_slurm_for_a_node_become_states(word: str, state: NodeState) -> None:
    assert node_state(word) is state


def test_scrubbing_keeps_the_way_to_the_cluster() -> None:
    before = {
        "SLURM_CONF": "c",
        "SLURM_JOB_ID": "1",
        "SBATCH_QOS": "q",
        "PMIX_RANK": "0",
        "OMPI_COMM_WORLD_SIZE": "2",
        "PATH": "p",
    }
    assert scrub(before) == {"SLURM_CONF": "c", "PATH": "p"}


@pytest.mark.parametrize(
    ("word", "reason", "told"),
    [
        ("SUSPENDED", "None", "Suspended"),
        ("STOPPED", "None", "Suspended"),
        ("RUNNING", "None", ""),
        ("PENDING", "Priority", "Priority"),
        ("PENDING", "None", ""),
        ("SUSPENDED,COMPLETING", "None", ""),
        ("CANCELLED", "Suspended", ""),
    ],
)
def test_a_reason_belongs_to_a_job_that_waits_or_is_suspended(word: str, reason: str, told: str) -> None:
    assert states.why(word, reason) == told
