"""What an attempt's row keeps of its reports: when it trained and saved, for whoever asks later where its slots went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dethpc.domain.facts import Attempt
from dethpc.domain.reports import Report, ReportKind


def marks(attempt: Attempt, reports: Sequence[Report]) -> dict[str, Any]:
    """What the attempt's row keeps of ``reports``, which are taken in now."""
    first_at, first_steps = attempt.first_at, attempt.first_steps
    last_at, last_steps, saved_at, saving = attempt.last_at, attempt.last_steps, attempt.saved_at, attempt.saving
    for report in reports:
        if report.kind not in (ReportKind.METRICS, ReportKind.CHECKPOINT):
            continue
        steps = int(report.data.get("steps_completed") or 0)
        if first_at is None:
            first_at, first_steps = report.at, steps
        last_at, last_steps = report.at, max(last_steps or 0, steps)
        if report.kind == ReportKind.CHECKPOINT:
            saved_at = report.at
            saving = (saving or 0.0) + _measured(report.data.get("seconds"))
    return {
        "first_at": first_at,
        "first_steps": first_steps,
        "last_at": last_at,
        "last_steps": last_steps,
        "saved_at": saved_at,
        "saving": saving,
    }


def _measured(seconds: object) -> float:
    """0 for what is no time, as journals of other releases may have it."""
    return seconds if isinstance(seconds, (int, float)) and 0 < seconds < math.inf else 0.0
