"""What a message says of a name that is not among those that there are: on compute nodes as in the master."""

from __future__ import annotations

from typing import Any, Iterable, List, Mapping, Optional

_NAMED = 8
"""How many of the reported names a message lists."""


def did_you_mean(word: str, names: Iterable[str], alike: float = 0.5) -> Optional[str]:
    """A hint with the nearest of the ``names``, or None when none is near. ``alike``: 0 to 1, how near it has to be."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(names), n=1, cutoff=alike)
    return f"did you mean {near[0]!r}?" if near else None


def without_metric(name: str, role: str, metrics: Mapping[str, Any]) -> str:
    """Why a search can do nothing with a validation of these ``metrics``, of which ``name`` is its ``role``; empty when it can."""
    if name in metrics:
        try:
            float(metrics[name])
        except (TypeError, ValueError, OverflowError):
            return f"{name}, the searcher's {role}, is reported as something that is not a number"
        return ""
    names = sorted(set(map(str, metrics)) - {"batch_metrics"})
    if not names:
        return f"{name}, the searcher's {role}, is not reported: the validation holds no metrics"
    hint = did_you_mean(name, names)
    message = f"{name}, the searcher's {role}, is not among the reported validation metrics ({_listed(names)})"
    return f"{message}; {hint}" if hint else message


def _listed(names: List[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(name if len(name) <= 60 else f"{name[:57]}..." for name in names[:_NAMED]) + (
        f" and {more} more" if more > 0 else ""
    )
