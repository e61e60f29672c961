"""What each of sbatch's refusals means for the job."""

from __future__ import annotations

import pytest

from dethpc.errors import SchedulerError, SchedulerUnavailable, SubmitDeferred, SubmitRejected, SubmitUncertain
from dethpc.scheduler.slurm.refusals import refusal

FAILED = "Batch job submission failed: "


@pytest.mark.parametrize(
    ("meaning", "words"),
    [
        (SubmitDeferred, "Required partition not available (inactive or drain)"),
        (SubmitDeferred, "Requested partition configuration not available now"),
        (SubmitDeferred, "Required node not available (down, drained or reserved)"),
        (SubmitDeferred, "Requested nodes are busy"),
        (SubmitDeferred, "Requested reservation is in use"),
        (SubmitDeferred, "Licenses are not available"),
        (SubmitDeferred, "AssocMaxSubmitJobLimit; Job violates accounting/QOS policy (job submit limit, user's size)"),
        (
            SubmitDeferred,
            "QOSMaxSubmitJobPerUserLimit; Job violates accounting/QOS policy (job submit limit, user's size)",
        ),
        (SubmitDeferred, "AssocGrpSubmitJobsLimit; Job violates accounting/QOS policy (job submit limit, user's size)"),
        (SubmitDeferred, "Slurm temporarily unable to accept job, sleeping and retrying"),
        (SubmitDeferred, "Resource temporarily unavailable"),
        (SubmitDeferred, "I/O error writing script/environment to file"),
        (SubmitDeferred, "Requested operation is presently disabled"),
        (SubmitDeferred, "The system is down for maintenance until Monday"),
        (SubmitUncertain, "Socket timed out on send/recv operation"),
        (SubmitUncertain, "Zero Bytes were transmitted or received"),
        (SchedulerUnavailable, "Unable to contact slurm controller (connect failure)"),
        (SchedulerUnavailable, "Slurm backup controller in standby mode"),
        (SchedulerUnavailable, "Protocol authentication error"),
        (SubmitRejected, "Requested node configuration is not available"),
        (SubmitRejected, "invalid partition specified: nowhere"),
        (SubmitRejected, "Invalid account or account/partition combination specified"),
        (SubmitRejected, "QOSMaxGRESPerJob; Job violates accounting/QOS policy (job submit limit, user's size)"),
        (SubmitRejected, "Requested time limit is invalid (missing or exceeds some limit)"),
    ],
)
def test_a_refusal_means_what_its_words_say(meaning: type[SchedulerError], words: str) -> None:
    assert type(refusal(FAILED + words)) is meaning
