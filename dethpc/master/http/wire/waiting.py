"""Why trials wait, on the wire. Ours; Determined has nothing like it."""

from __future__ import annotations

from collections.abc import Sequence

from dethpc.domain.facts import Experiment
from dethpc.insight.waiting import WaitReason
from dethpc.master.http.models import Wire, time_or_none
from dethpc.master.watching.wait_reasons import Group

_NAMED = 100  # trials of a group whose ids are told


class Reason(Wire):
    """``cause``: Slurm's word, or one of ours: max_slots, window, next, submitting, resting, storage, searcher, paused, no_answer.
    ``text``: ``why`` and ``sooner`` as one text. ``start_time``: when it is expected to start."""

    cause: str
    why: str
    sooner: str
    text: str
    start_time: str | None

    @classmethod
    def of(cls, waiting: WaitReason) -> Reason:
        return cls(
            cause=waiting.cause,
            why=waiting.why,
            sooner=waiting.remedy,
            text=str(waiting),
            start_time=time_or_none(waiting.start),
        )


class WaitingGroup(Reason):
    """Trials that wait for the same thing; ids of the first hundred."""

    count: int
    trial_ids: list[int]


class ExperimentWaits(Wire):
    """``text``: what most of its trials wait for; empty when none waits."""

    experiment_id: int
    job_id: str
    text: str
    count: int
    groups: list[WaitingGroup]

    @classmethod
    def of(cls, experiment: Experiment, groups: Sequence[Group]) -> ExperimentWaits:
        told = [
            WaitingGroup(
                **Reason.of(group.waiting).model_dump(), count=len(group.trials), trial_ids=group.trials[:_NAMED]
            )
            for group in groups
        ]
        return cls(
            experiment_id=experiment.id,
            job_id=experiment.queue_id,
            text=told[0].text if told else "",
            count=sum(group.count for group in told),
            groups=told,
        )


class AllWaits(Wire):
    experiments: list[ExperimentWaits]


class TrialWaits(Wire):
    """``waiting``: None when the trial waits for nothing."""

    trial_id: int
    waiting: Reason | None
