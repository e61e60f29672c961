"""Why a run waits, in words: Slurm's reasons, our own queue's, and what can never start."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dethpc.domain.facts import Run
from dethpc.domain.nodes import NodeState
from dethpc.domain.ports import SUSPENDED, NodeInfo, PoolInfo, QueuedJob
from dethpc.domain.resource_request import ResourceRequest
from dethpc.domain.states import RunState
from dethpc.engine import events
from dethpc.engine.queueing.pools import Rules
from dethpc.insight.reasons import in_scheduler, of_run
from dethpc.insight.waiting import PoolView, WaitReason, in_queue, infeasible
from tests.engine.world import World, config

ASKED = ResourceRequest("main", nodes=1, slots_per_node=4)
NODES = [NodeInfo(f"n{i}", NodeState.MIXED, 4, 3, ("main",), cpus=8, memory_mb=4000) for i in range(4)]
POOL = PoolInfo("main", "gpu", nodes=4, slots=16, slots_used=12, max_time=3600, max_nodes=3)
VIEW = PoolView(POOL, NODES)
QUEUE = [
    QueuedJob("5", mine=True, running=True),
    QueuedJob("6", mine=False, running=True),
    QueuedJob("7", mine=False, running=False, priority=10),
    QueuedJob("8", mine=True, running=False, priority=5, start=2000.0),
    QueuedJob("9", mine=True, running=False, priority=5),
]

# Every reason of Slurm 22.05 and 25.05 that a pending job can show, and a few as squeue spells them with their details.
REASONS = """
None Priority Dependency Resources PartitionNodeLimit PartitionTimeLimit PartitionDown PartitionInactive PartitionConfig
JobHeldAdmin JobHeldUser BeginTime Licenses Reservation ReqNodeNotAvail FrontEndDown Cleaning Prolog SchedDefer Singleton
SystemFailure JobLaunchFailure InvalidAccount InvalidQOS AccountNotAllowed QOSNotAllowed QOSUsageThreshold QOSJobLimit
QOSResourceLimit QOSTimeLimit DependencyNeverSatisfied BadConstraints NodeDown DeadLine MaxRequeue JobArrayTaskLimit
ReservationDeleted BurstBufferResources BurstBufferStageIn PowerNotAvail PowerReserved FedJobLock OutOfMemory
AssociationJobLimit AssociationResourceLimit AssociationTimeLimit AssocMaxJobsLimit AssocGrpCpuLimit AssocGrpCPUMinutesLimit
AssocGrpCPURunMinutesLimit AssocGrpJobsLimit AssocGrpMemLimit AssocGrpMemMinutes AssocGrpNodeLimit AssocGrpSubmitJobsLimit
AssocGrpWallLimit AssocMaxCpuPerJobLimit AssocMaxCpuMinutesPerJobLimit AssocMaxNodePerJobLimit AssocMaxWallDurationPerJobLimit
AssocMaxSubmitJobLimit AssocGrpGRES AssocGrpGRESMinutes AssocMaxGRESPerJob AssocMaxGRESPerNode AssocGrpBilling AssocGrpLicense
QOSGrpCpuLimit QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit QOSGrpJobsLimit QOSGrpMemLimit QOSGrpNodeLimit
QOSGrpSubmitJobsLimit QOSGrpWallLimit QOSMaxCpuPerJobLimit QOSMaxCpuPerUserLimit QOSMaxNodePerJobLimit QOSMaxNodePerUserLimit
QOSMaxJobsPerUserLimit QOSMaxSubmitJobPerUserLimit QOSMaxWallDurationPerJobLimit QOSMinCpuNotSatisfied QOSMinGRES
QOSMaxGRESPerUser QOSMaxGRESPerJob QOSMaxGRESPerAccount QOSGrpGRES QOSGrpGRESRunMinutes QOSMaxMemoryPerUser QOSMaxBillingPerUser
QOSMaxJobsPerAccountLimit MaxCpuPerAccount MaxGRESPerAccount MaxNodePerAccount MaxMemPerLimit MaxJobsPerAccount
MaxBBPerAccount MaxSubmitJobsPerAccount launch_failed_requeued_held job_requeued_in_held_state
ReqNodeNotAvail,_UnavailableNodes:n[1-2] ReqNodeNotAvail,_May_be_reserved_for_other_job
ReqNodeNotAvail,_Reserved_for_maintenance
Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions
""".split()


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_of_slurm_is_put_in_words(reason: str) -> None:
    said = in_scheduler(reason, ASKED, VIEW, "8")
    assert "Slurm says" not in said.why, "the word is not known"
    assert len(said.why) > 20 and "{" not in str(said) and "_" not in said.why.replace(reason, "")
    assert said.cause == reason.partition(",")[0]


def test_a_start_that_slurm_only_guesses_is_not_passed_on() -> None:
    year = 365 * 86400
    for start, told in ((5000.0, 5000.0), (1000.0 + year, None)):
        queue = [QueuedJob("5", mine=False, running=True, start=1000.0), QueuedJob("8", True, False, start=start)]
        assert in_scheduler("Resources", ASKED, replace(VIEW, queue=queue), "8").start == told


def test_a_word_of_a_later_slurm_is_passed_on() -> None:
    assert str(in_scheduler("Moon_in_wrong_phase", ASKED, VIEW)) == "Slurm says: Moon in wrong phase"


def test_a_requeued_job_says_how_its_last_start_ended_until_slurm_says_more() -> None:
    assert in_scheduler("a node failed", ASKED, VIEW).why == "it was queued again: a node failed"


@given(st.text(max_size=40), st.booleans())
def test_no_word_is_too_strange(reason: str, known: bool) -> None:
    assert in_scheduler(reason, ASKED, VIEW if known else PoolView()).why


def test_resources_says_who_has_them_and_what_would_fit_now() -> None:
    said = in_scheduler("Resources", ASKED, replace(VIEW, queue=QUEUE), "8")
    assert said.why == (
        "it waits for 4 GPUs on one node to be free: 12 of 16 slots of pool main are in use by 1 job of this master's owner"
        " and 1 job of other users"
    )
    assert said.remedy == "a trial of 1 GPU would find room now (resources.slots_per_trial)"
    assert said.start == 2000.0


def test_figures_of_the_moment_are_left_out_where_nobody_asked_for_them() -> None:
    assert in_scheduler("Resources", ASKED, VIEW).why == "it waits for 4 GPUs on one node to be free"
    assert "12" not in str(in_scheduler("Resources", ASKED, VIEW))


def test_nodes_that_are_down_are_named_with_slurms_reason_for_it() -> None:
    down = [replace(node, state=NodeState.DRAINED, reason="bad fan") for node in NODES]
    said = in_scheduler("Resources", ASKED, replace(VIEW, nodes=down))
    assert "n0, n1, n2, n3 are drained (bad fan)" in said.why and "administrator" in said.remedy


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        (REASONS[-1], r"are down, drained, or reserved for jobs of partitions with a higher priority"),
        ("ReqNodeNotAvail,_May_be_reserved_for_other_job", r"may be reserved for another job"),
        ("ReqNodeNotAvail,_UnavailableNodes:n[1-2]", r"are not available now; Slurm names n\[1-2\]"),
    ],
)
def test_nodes_that_slurm_keeps_back_are_told_in_a_whole_sentence(reason: str, why: str) -> None:
    assert re.fullmatch(rf"the nodes that it needs \(4 GPUs on one node\) {why}", in_scheduler(reason, ASKED, VIEW).why)
    down = [replace(node, state=NodeState.DRAINED, reason="bad fan") for node in NODES]
    assert "are drained (bad fan)" in in_scheduler(reason, ASKED, replace(VIEW, nodes=down)).why


def test_priority_counts_who_is_ahead_and_whose_they_are() -> None:
    view = replace(VIEW, queue=QUEUE)
    assert in_scheduler("Priority", ASKED, view, "8").why == (
        "1 job is ahead of it in partition gpu (1 job of other users)"
    )
    assert "2 jobs are ahead" in in_scheduler("Priority", ASKED, view, "9").why
    mine = replace(VIEW, queue=[job for job in QUEUE if job.mine])
    assert "det job update" in in_scheduler("Priority", ASKED, mine, "9").remedy
    assert "no job is ahead" in in_scheduler("Priority", ASKED, mine, "8").why


def test_a_hold_says_how_it_is_undone() -> None:
    assert str(in_scheduler("JobHeldUser", ASKED, VIEW, "17")) == (
        "It was held by hand, with scontrol hold (JobHeldUser). Release it: scontrol release 17"
    )


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("QOSMaxGRESPerUser", "your jobs have reached the limit that its QOS sets to GPUs"),
        ("AssocGrpCPURunMinutesLimit", "all jobs of its account together have reached the limit"),
        ("MaxCpuPerAccount", "all jobs of the account have reached the limit that the site sets to CPUs"),
        ("QOSMaxWallDurationPerJobLimit", "it asks for more running time than its QOS allows to one job"),
        ("QOSMinGRES", "each job has to ask for more GPUs"),
        ("AssocMaxJobsLimit", "your jobs have reached the limit that its account sets to running jobs"),
    ],
)
def test_limits_are_read_from_how_they_are_named(reason: str, why: str) -> None:
    said = in_scheduler(reason, ASKED, VIEW)
    assert said.why.startswith(why) and reason in said.why


def test_what_can_never_start_is_said_with_the_change_that_helps() -> None:
    assert infeasible(ASKED, VIEW) is None
    eight = infeasible(ResourceRequest("main", 1, 8), VIEW)
    assert eight is not None
    assert eight.why == "8 GPUs on one node, but the largest node of pool main has 4"
    assert eight.remedy == "set slurm.slots_per_node: 4"
    said = in_scheduler("Resources", ResourceRequest("main", 1, 8), VIEW)
    assert said.why.startswith("it can never start: 8 GPUs on one node") and said.remedy == eight.remedy


@pytest.mark.parametrize(
    ("asked", "why", "remedy"),
    [
        (ResourceRequest("main", 1, 6), "largest node of pool main has 4", "multiple of 4"),
        (ResourceRequest("main", 5, 4), "5 nodes of 4 GPUs, but pool main has 4 nodes", "at most 16 slots"),
        (ResourceRequest("main", 4, 4), "partition gpu allows 3 per job", "at most 12 slots"),
        (
            ResourceRequest("main", 1, 4, time_limit=7200),
            "02:00:00, but partition gpu allows 01:00:00",
            "over several jobs",
        ),
        (ResourceRequest("main", 1, 4, cpus_per_node=32), "32 cores on one node, but", "cpus_per_slot"),
        (ResourceRequest("main", 1, 4, memory_per_node_mb=64000), "64000 MB on one node, but", "mem_per_slot"),
    ],
)
def test_every_limit_is_checked(asked: ResourceRequest, why: str, remedy: str) -> None:
    found = infeasible(asked, VIEW)
    assert found is not None and why in found.why and remedy in found.remedy


def test_nodes_that_are_down_come_back_and_what_is_not_known_forbids_nothing() -> None:
    assert infeasible(ASKED, replace(VIEW, nodes=[replace(node, state=NodeState.DOWN) for node in NODES])) is None
    assert infeasible(ASKED, replace(VIEW, nodes=[replace(node, slots=0) for node in NODES])) is None
    assert infeasible(ResourceRequest("main", 99, 99), PoolView()) is None


def test_our_own_queue_says_which_of_its_limits_is_reached() -> None:
    world = World()
    world.state.rules = {"main": Rules(window=1)}
    first = world.create(searcher=config("random", max_concurrent_trials=4)["searcher"])
    second = world.create(searcher=config("single")["searcher"])
    of = world.state.experiments

    said = in_queue(world.state, of[first.id], world.clock)
    assert said.cause == "window" and "1 run of this master waits" in said.why and "it is next" in said.why
    said = in_queue(world.state, of[second.id], world.clock)
    assert said.cause == "window" and "3 trials of other experiments come first" in said.why
    assert "priority" in said.remedy

    of[first.id].row = replace(of[first.id].row, max_slots=1)
    said = in_queue(world.state, of[first.id], world.clock)
    assert said == WaitReason(
        "max_slots",
        "the experiment's max_slots of 1 is used up by its trials that run or wait in the scheduler",
        f"raise it: det experiment set max-slots {first.id} N",
    )
    of[first.id].row = replace(of[first.id].row, slots_per_trial=2)
    said = in_queue(world.state, of[first.id], world.clock)
    assert "can never start" in said.why and f". det experiment set max-slots {first.id} 2" in str(said)


def test_a_trial_without_a_run_waits_for_what_keeps_the_others_of_its_experiment() -> None:
    world = World()
    world.state.rules = {"main": Rules(window=1)}
    first = world.create(searcher=config("random", max_concurrent_trials=4)["searcher"])
    world.do(events.SubmitDeferred(world.live()[0].id, "the account is closed", world.clock))
    said = in_queue(world.state, world.state.experiments[first.id], world.clock)
    assert said.cause == "refused" and said.why.endswith(
        "its job cannot be submitted at present: the account is closed"
    )


@pytest.mark.parametrize(("word", "whole"), [("QOSMaxCpuPerNode", "one node"), ("QOSMaxCpuPerJobLimit", "one job")])
def test_limit_says_to_what_it_applies(word: str, whole: str) -> None:
    assert f"allows to {whole}" in in_scheduler(word, ASKED, VIEW).why


@pytest.mark.parametrize("reason", REASONS)
def test_a_sentence_names_slurms_own_word_once(reason: str) -> None:
    word = reason.partition(",")[0]
    assert str(in_scheduler(reason, ASKED, VIEW, "8")).count(f"({word})") == (word != "None")


@pytest.mark.parametrize(
    ("state", "reason", "sentence"),
    [
        (RunState.PENDING, "Resources", "It waits for 2 slots on one node to be free (Resources)"),
        (
            RunState.PENDING,
            "QOSMaxJobsPerUserLimit",
            "Your jobs have reached the limit that its QOS sets to running jobs (QOSMaxJobsPerUserLimit). "
            "It starts when some of them end; another QOS or account may have room",
        ),
        (RunState.PENDING, "", ""),
        (RunState.SUBMITTING, "waits for image u", "It waits for image u"),
        (RunState.RUNNING, "exit code 1", "exit code 1"),
        (RunState.ENDED, "exit code 1", "exit code 1"),
    ],
)
def test_a_run_says_why_it_waits_in_sentences(state: RunState, reason: str, sentence: str) -> None:
    run = Run("c1.1", None, "c1", 1, state, 1000.0, 2, "main", scheduler_job_id="17", reason=reason)
    assert of_run(run) == sentence


def test_a_run_whose_job_is_suspended_says_what_resumes_it() -> None:
    run = Run("c1.1", None, "c1", 1, RunState.RUNNING, 1000.0, 2, "main", scheduler_job_id="17", reason=SUSPENDED)
    assert "has suspended its job 17" in of_run(run)
