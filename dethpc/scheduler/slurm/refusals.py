"""What sbatch means when it takes no job: nobody knows, nobody is there, not now, or never.

A site that prepares its maintenance closes partitions, reserves nodes and takes licences or limits away. That is no judgement of
the job: it is submitted again later. What no row of the table knows is for good.
"""

from __future__ import annotations

import re

from dethpc.errors import SchedulerError, SchedulerUnavailable, SubmitDeferred, SubmitRejected, SubmitUncertain

_MEANINGS: list[tuple[type[SchedulerError], str]] = [
    # The first row that fits counts. The job may have been taken although nobody said so.
    (SubmitUncertain, r"timed out|zero bytes were transmitted|unexpected message received|connection reset"),
    (SubmitUncertain, r"communication (connection )?failure"),
    # An answer: the job is not taken at present.
    (SubmitDeferred, r"partition not available|partition configuration not available now|partition is (down|inactive|drain)"),
    (SubmitDeferred, r"required node not available|nodes? (required|requested).*(down|drained|reserved)|nodes are busy"),
    (SubmitDeferred, r"reservation (is )?(in use|not usable|not currently usable|busy)|maintenance"),
    (SubmitDeferred, r"licenses? (are |is )?(currently )?(not available|unavailable)"),
    (SubmitDeferred, r"Max(Submit|Job)|Grp(Submit|Job)|maximum job count|job count limit|rate limit|RPC limit"),
    (SubmitDeferred, r"temporarily unable|temporarily unavailable|try again later|presently disabled|submission.*disabled"),
    (SubmitDeferred, r"I/O error writing script|no space left on device|error writing (job|to) "),
    # No answer, or of somebody who cannot decide. Nothing was done.
    (SchedulerUnavailable, r"unable to contact slurm|connection refused|connect failure|standby mode|munge|authentication"),
    (SchedulerUnavailable, r"could not establish a configuration|slurmdbd|persistent connection"),
]  # fmt: skip


def refusal(message: str) -> SchedulerError:
    """The error that ``message`` of a failed sbatch means."""
    for meaning, words in _MEANINGS:
        if re.search(words, message, re.IGNORECASE):
            return meaning(message)
    return SubmitRejected(message)
