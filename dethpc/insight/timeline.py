"""When a trial waited, trained and lost its training: the same cuts of time as in ``goodput``, as spans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from dethpc.domain.facts import Attempt, Run, Trial
from dethpc.domain.goodput import cuts, saved
from dethpc.domain.states import AttemptState, End
from dethpc.domain.text.rungs import completed_in_full

Kind = Literal["waiting", "starting", "training", "lost", "ending"]
Span = tuple[Kind, float, float]
"""What was done from when to when, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Spent:
    """``attempt``: None for a run that waits for its first, or ended without one. ``saving``: seconds within the training."""

    attempt: Attempt | None
    spans: list[Span]
    saving: float = 0.0


def of_attempts(run: Run, attempts: Sequence[Attempt], now: float) -> Iterator[Spent]:
    """What became of each attempt of a run, with the wait before it."""
    since: float | None = run.created_at
    for attempt in attempts:
        at = cuts(attempt, now)
        parts: list[Span] = [] if since is None else [("waiting", since, attempt.started_at)]
        parts += [("starting", at.begin, at.trains), ("training", at.trains, at.counts)]
        parts += [("lost", at.counts, at.heard), ("ending", at.heard, at.end)]
        yield Spent(attempt, [span for span in parts if span[2] > span[1]], saved(attempt, at))
        since = attempt.ended_at if attempt.state is AttemptState.ENDED else None
    if since is not None and (run.ended_at is None or not attempts):
        end = now if run.ended_at is None else run.ended_at
        if end > since:
            yield Spent(None, [("waiting", since, end)])


def end_for_people(end: End | None, run: Run, trial: Trial) -> End | None:
    """How a run, or an attempt of it, ended. The last one of a trial that its search stopped at the full length completed it."""
    if end is End.STOPPED and run.number == trial.runs and completed_in_full(trial.state, trial.reason):
        return End.COMPLETED
    return end
