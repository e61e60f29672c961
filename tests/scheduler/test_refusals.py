"""What each of sbatch's refusals means for the job, and that nothing else in its output does."""

from __future__ import annotations

import pytest

from dethpc.errors import SchedulerError, SchedulerUnavailable, SubmitDeferred, SubmitRejected, SubmitUncertain
from dethpc.scheduler.slurm.refusals import of_test_only, refusal, refused

POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"

BANNERS = [
    "NOTE: scheduled maintenance on Tuesday 8:00-12:00, see the status page",
    "error: the last 3 jobs of yours timed out; munge will be restarted; connection refused",
    "Socket timed out on send/recv operation: what to do? https://wiki/slurm",
    "sbatch: your quota is 97 % used, no space left on device soon, try again later",
    "sbatch: error: lua: GPU nodes are in maintenance, submission is disabled on Monday",
    "sbatch: info: Unable to contact slurm controller is a known problem",
    "Batch job submission failed: Requested nodes are busy: how often did you see this today?",
    "Submitted batch job 4711",
]


def printed(*errors: str) -> str:
    return "".join(f"sbatch: error: {line}\n" for line in errors)


def failed(sentence: str, *before: str) -> str:
    return printed(*before, f"Batch job submission failed: {sentence}")


SENTENCES = [
    (SubmitDeferred, failed("Required partition not available (inactive or drain)")),
    (SubmitDeferred, failed("Requested partition configuration not available now")),
    (SubmitDeferred, failed("Required node not available (down, drained or reserved)")),
    (SubmitDeferred, failed("Requested nodes are busy")),
    (SubmitDeferred, failed("Requested reservation is in use")),
    (SubmitDeferred, failed("Requested reservation not usable now")),
    (SubmitDeferred, failed("Job can not start due to maintenance reservation.")),
    (SubmitDeferred, failed("Licenses currently unavailable")),
    (SubmitDeferred, failed(POLICY, "AssocMaxSubmitJobLimit")),
    (SubmitDeferred, failed(POLICY, "QOSMaxSubmitJobPerUserLimit")),
    (SubmitDeferred, failed(POLICY, "QOSGrpSubmitJobsLimit")),
    (SubmitDeferred, failed(POLICY, "AssocGrpJobsLimit")),
    (SubmitDeferred, failed("Slurm temporarily unable to accept job, sleeping and retrying")),
    (SubmitDeferred, failed("MaxJobCount limit reached")),
    (SubmitDeferred, failed("Rate limit exceeded, please retry momentarily")),
    (SubmitDeferred, failed("System submissions disabled")),
    (SubmitDeferred, failed("Resource temporarily unavailable")),
    (SubmitDeferred, failed("I/O error writing script/environment to file")),
    (SubmitDeferred, failed("Requested operation is presently disabled")),
    (SubmitUncertain, failed("Socket timed out on send/recv operation")),
    (SubmitUncertain, failed("Zero Bytes were transmitted or received")),
    (SubmitUncertain, failed("Unable to contact slurm controller (receive failure)")),
    (SchedulerUnavailable, failed("Unable to contact slurm controller (connect failure)")),
    (SchedulerUnavailable, failed("Slurm backup controller in standby mode")),
    (SchedulerUnavailable, failed("Protocol authentication error", "Munge encode failed: Invalid credential")),
    (SchedulerUnavailable, "sbatch: fatal: Could not establish a configuration source\n"),
    (SchedulerUnavailable, printed("Munge encode failed: Failed to access the socket")),
    (SubmitRejected, failed("Requested node configuration is not available")),
    (SubmitRejected, failed("Invalid license specification")),
    (SubmitRejected, failed("Invalid partition name specified", "invalid partition specified: maintenance")),
    (SubmitRejected, failed("Invalid account or account/partition combination specified")),
    (SubmitRejected, failed(POLICY, "QOSMaxGRESPerJob")),
    (SubmitRejected, failed(POLICY)),
    (SubmitRejected, failed("Requested time limit is invalid (missing or exceeds some limit)")),
    (SubmitRejected, failed("Unspecified error", "Please name an account; the default one is in maintenance")),
    (SubmitRejected, printed("Invalid --time specification")),
    (SubmitRejected, printed("cli_filter plugin terminated with error")),
    (SubmitRejected, "sbatch: unrecognized option '--timed-out'\n"),
]


@pytest.mark.parametrize(("meaning", "stderr"), SENTENCES)
def test_a_refusal_means_what_slurm_says_whatever_else_is_printed(meaning: type[SchedulerError], stderr: str) -> None:
    assert type(refusal(stderr)) is meaning
    for banner in BANNERS:
        own = banner.startswith(("sbatch: error", "Batch job"))
        assert type(refusal(f"{banner}\n{stderr}")) is meaning, banner
        if not own:
            assert type(refusal(f"{stderr}{banner}\n")) is meaning, banner


@pytest.mark.parametrize("banner", BANNERS[:4])
def test_a_wrapper_that_refuses_by_itself_is_quoted_and_its_words_decide_nothing(banner: str) -> None:
    error = refusal(f"{banner}\n")
    assert type(error) is SubmitRejected and banner in str(error)


def test_a_message_is_slurms_and_leaves_banners_out() -> None:
    stderr = f"{BANNERS[0]}\n{failed('Invalid partition name specified', 'invalid partition specified: nope')}"
    expected = "invalid partition specified: nope; Batch job submission failed: Invalid partition name specified"
    assert str(refusal(stderr)) == expected


def test_a_program_that_a_site_has_renamed_is_understood() -> None:
    stderr = "sbatch.real: error: Batch job submission failed: Requested nodes are busy\n"
    assert refused(stderr) and type(refusal(stderr)) is SubmitDeferred


def test_what_it_says_while_it_tries_again_is_no_refusal() -> None:
    assert not refused("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n")


@pytest.mark.parametrize(
    ("stderr", "verdict"),
    [
        ("allocation failure: Invalid license specification\n", ("Invalid license specification", True)),
        (printed("invalid partition specified: x") + "allocation failure: Invalid partition name specified\n",
         ("Invalid partition name specified", True)),
        ("allocation failure: Invalid account or account/partition combination specified\n",
         ("Invalid account or account/partition combination specified", True)),
        (printed("Invalid generic resource (gres) specification"), ("Invalid generic resource (gres) specification", True)),
        ("sbatch: unrecognized option '--frob'\nTry \"sbatch --help\"\n", ("unrecognized option '--frob'", True)),
        ("allocation failure: Requested node configuration is not available\n",
         ("Requested node configuration is not available", False)),
        ("allocation failure: Required partition not available (inactive or drain)\n",
         ("Required partition not available (inactive or drain)", False)),
        ("allocation failure: Unable to contact slurm controller (connect failure)\n", ("", False)),
        ("allocation failure: Socket timed out on send/recv operation\n", ("", False)),
        ("", ("", False)),
        ("maintenance of Invalid license specification on Monday\n", ("", False)),
    ],
)  # fmt: skip
def test_a_tested_job_is_refused_by_what_no_time_mends_alone(stderr: str, verdict: tuple[str, bool]) -> None:
    assert of_test_only(stderr) == verdict
    for banner in BANNERS:
        assert of_test_only(f"{banner}\n{stderr}") == verdict if verdict[0] else True
